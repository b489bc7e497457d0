/* expect: none. A known limitation: the analyzer does not follow calls as deep as these. */
#include <stdlib.h>
static int *keep(int *p, int n) { return n ? keep(p, n - 1) : p; }
static void drop(int *p, int n) { if (n) drop(p, n - 1); else free(p); }
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    drop(p, 30);
    return *keep(p, 30);
}
