/* expect: failed. Line ends inside the words of the pragma. */
#include <stdlib.h>
#pra\
gma GCC diag\ 
nostic ignored "-Wanalyzer-use-after-free"
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
