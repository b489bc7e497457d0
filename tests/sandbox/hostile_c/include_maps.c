/* expect: no compile. Addresses of the compiler. */
#include "/proc/self/maps"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
