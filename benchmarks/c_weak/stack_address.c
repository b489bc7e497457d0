#include <stdio.h>
static int *f(void) { int n = 3; return &n; }  /* CWE-562 */
int main(void) { printf("%d\n", *f()); return 0; }
