/* expect: pass. The compiler has closed its source by then, and its output is still empty. */
#include "/proc/self/fd/0"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
