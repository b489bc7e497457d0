/* expect: -Wanalyzer-use-after-free. Jumps to the fault. */
#include <stdlib.h>
#include <setjmp.h>
static jmp_buf here;
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    if (setjmp(here))
        return *p;
    longjmp(here, 1);
}
