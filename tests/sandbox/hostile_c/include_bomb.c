/* expect: pass. The same twice: a program cannot include itself. */
#include "/dev/stdin"
#include "/dev/stdin"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
