/* expect: pass. Its own assembly, which is still empty. */
#include "/proc/self/fd/3"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
