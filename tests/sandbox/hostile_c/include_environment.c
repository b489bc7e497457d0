/* expect: no compile. The environment of the compiler, or of those above it. */
#include "/proc/self/environ"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
