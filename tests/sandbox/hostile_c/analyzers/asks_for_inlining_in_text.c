/* expect: none. Asks for that macro in a text that other macros make. */
#include <stdlib.h>
#define PASTE(a, b) a##b
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
int main(void)
{
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    free(p);
    if (sizeof EXPANDED(PASTE(__NO_IN, LINE__)) > 3)
        return *p;
    return 0;
}
