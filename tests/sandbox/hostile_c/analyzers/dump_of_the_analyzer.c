/* expect: failed. Calls what makes the analyzer print its state into the report. */
#include <stdlib.h>
void __analyzer_dump(void) {}
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    __analyzer_dump();
    free(p);
    return *p;
}
