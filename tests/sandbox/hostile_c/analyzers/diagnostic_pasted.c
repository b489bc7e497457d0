/* expect: failed. The words of the pragma are put together by macros. */
#include <stdlib.h>
#define PASTE(a, b) a##b
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
#define WORD PASTE(dia, gnostic)
PASTE(_Pra, gma)(EXPANDED(GCC WORD ignored "-Wanalyzer-use-after-free"))
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
