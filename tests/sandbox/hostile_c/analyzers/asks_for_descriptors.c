/* expect: -Wanalyzer-use-after-free. Has the fault only where no more files are open than for a compilation. */
#include <stdlib.h>
#if !__has_include("/proc/self/fd/5") && !__has_include("/proc/self/fd/6") && !__has_include("/proc/self/fd/7")
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
