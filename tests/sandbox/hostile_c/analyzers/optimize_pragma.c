/* expect: failed. Has the compiler remove what the analyzer would find. */
#include <stdlib.h>
#include <stdio.h>
#pragma GCC optimize("O3")
int main(void)
{
    int *p = malloc(sizeof *p);
    *p = 3;
    printf("%d\n", *p);
    free(p);
    return 0;
}
