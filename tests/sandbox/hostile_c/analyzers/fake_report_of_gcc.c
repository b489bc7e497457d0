/* expect: -Wanalyzer-use-after-free. Has gcc print an empty report, and its end. */
#include <stdlib.h>
#warning ]
#pragma message("[]\n[{\"kind\": \"note\"}]")
#pragma GCC warning "\"}] []"
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
