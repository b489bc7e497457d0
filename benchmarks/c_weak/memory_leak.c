#include <stdio.h>
#include <stdlib.h>
static void f(int n) {
    char *p = malloc((size_t)n + 1u);
    if (!p) return;
    p[0] = 0;
    puts(p);
}  /* CWE-401 */
int main(void) { f(3); return 0; }
