/* expect: failed. Switches the warning off. */
#include <stdlib.h>
#pragma GCC diagnostic ignored "-Wanalyzer-use-after-free"
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
