/* expect: none. The same by a macro of gcc without optimization, so nowhere: what runs has it as well. */
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
