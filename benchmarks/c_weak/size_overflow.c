#include <stdio.h>
#include <stdlib.h>
int main(void) {
    int n;
    if (scanf("%d", &n) != 1) return 1;
    int *p = malloc(n * sizeof *p);  /* CWE-190 */
    if (!p) return 1;
    for (int i = 0; i < n; i++) p[i] = i;
    printf("%d\n", p[0]);
    free(p);
    return 0;
}
