/* expect: -Wanalyzer-use-after-free. A condition that cppcheck computes in another way. */
#include <stdlib.h>
#if -1 > 0u
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
