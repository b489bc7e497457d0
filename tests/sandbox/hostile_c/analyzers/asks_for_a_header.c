/* expect: -Wanalyzer-use-after-free. Has the fault only with the headers of the system, which cppcheck does not read. */
#include <stdlib.h>
#include <stdio.h>
#if BUFSIZ < 3
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
