/* expect: failed. The same by the one macro that tells the two apart. */
#include <stdlib.h>
#ifndef __NO_\
INLINE__
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
#else
int main(void) { return 0; }
#endif
