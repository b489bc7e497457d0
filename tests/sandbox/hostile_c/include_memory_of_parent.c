/* expect: no compile. The first process. */
#include "/proc/1/environ"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
