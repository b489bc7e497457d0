/* expect: -Wanalyzer-use-after-free. Claims that its text is a header of the system. */
#include <stdlib.h>
# 1 "/usr/include/x.h" 1 3
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
