/* expect: failed. Switches the warning off where no directive can be. */
#include <stdlib.h>
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    _Pragma("GCC diagnostic ignored \"-Wanalyzer-use-after-free\"")
    return *p;
}
