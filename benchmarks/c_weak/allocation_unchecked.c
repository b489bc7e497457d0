#include <stdio.h>
#include <stdlib.h>
int main(void) {
    int *p = malloc(4 * sizeof *p);
    p[0] = 3;  /* CWE-690 */
    printf("%d\n", p[0]);
    free(p);
    return 0;
}
