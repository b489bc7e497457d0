/* expect: -Wanalyzer-use-after-free. Claims that its text is none at all. */
#include <stdlib.h>
# 1 "<built-in>"
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
