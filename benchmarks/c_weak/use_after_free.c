#include <stdio.h>
#include <stdlib.h>
int main(void) {
    int *p = malloc(sizeof *p);
    if (!p) return 1;
    *p = 3;
    free(p);
    printf("%d\n", *p);  /* CWE-416 */
    return 0;
}
