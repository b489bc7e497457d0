/* expect: failed. Trigraphs in place of the hash and of the backslash. */
#include <stdlib.h>
??=pra??/
gma GCC diagnostic ignored "-Wanalyzer-use-after-free"
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    return *p;
}
