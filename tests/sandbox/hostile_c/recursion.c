/* expect: report. Recursion without an end. */
#include <stdio.h>
static int down(int n) { volatile char room[512]; room[0] = (char)n; return down(n + 1) + room[0]; }
int main(void) { printf("%d\n", down(0)); return 0; }
