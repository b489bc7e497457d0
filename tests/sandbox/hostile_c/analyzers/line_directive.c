/* expect: -Wanalyzer-use-after-free. Moves its lines to another file. */
#include <stdlib.h>
#line 3 "/usr/include/stdio.h"
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
