/* expect: failed. Has the fault only where an optimizing compiler knows a value. */
#include <stdlib.h>
int main(void)
{
    int *p = malloc(sizeof *p), known = 3;
    if (!p)
        return 1;
    free(p);
    if (__builtin_constant_p(known))
        return *p;
    return 0;
}
