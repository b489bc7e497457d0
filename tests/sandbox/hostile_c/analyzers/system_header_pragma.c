/* expect: -Wanalyzer-use-after-free. Enters a file that is not there, and calls it a header of the system. */
#include <stdlib.h>
# 1 "x.h" 1
#pragma GCC system_header
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
