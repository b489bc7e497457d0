/* expect: pass. Asks for a plugin in a place where options of the optimizer stand. */
#pragma GCC optimize ("-fplugin=/canary/data/keep.txt")
#include <stdio.h>
int main(void) { puts("42"); return 0; }
