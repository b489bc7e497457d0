/* expect: memory. Fills an array that costs its file nothing. */
#include <stdio.h>
static char huge[1u << 30];
int main(void) {
    for (unsigned n = 0; n < sizeof huge; n += 4096) huge[n] = 1;
    printf("%d\n", huge[4096] + 41);
    return 0;
}
