/* expect: -Wanalyzer-use-after-free. An error for cppcheck alone; gcc reads the rest. */
#include <stdlib.h>
#ifndef _STDLIB_H
#error no
#endif
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
