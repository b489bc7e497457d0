/* expect: pass. The header that poisons words; twice does no harm. */
#include "/proc/self/fd/4"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
