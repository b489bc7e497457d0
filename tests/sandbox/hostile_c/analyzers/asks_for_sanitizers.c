/* expect: -Wanalyzer-use-after-free. Has the fault only where sanitizers watch. */
#include <stdlib.h>
#ifdef __SANITIZE_ADDRESS__
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
