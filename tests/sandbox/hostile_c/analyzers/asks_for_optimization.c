/* expect: -Wanalyzer-use-after-free. Has the fault only where the code is optimized. */
#include <stdlib.h>
#ifdef __OPTIMIZE__
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
