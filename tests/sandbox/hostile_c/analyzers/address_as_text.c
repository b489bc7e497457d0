/* expect: none. A known limitation: neither analyzer follows an address that is text for a while. */
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    char text[32];
    void *kept = NULL;
    int *p = malloc(sizeof *p);
    if (!p)
        return 1;
    snprintf(text, sizeof text, "%p", (void *)p);
    free(p);
    sscanf(text, "%p", &kept);
    return *(int *)kept;
}
