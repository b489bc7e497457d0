/* expect: failed. As a pragma for one function. */
#include <stdlib.h>
__attribute__((__optimize__(3))) int main(void);
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
