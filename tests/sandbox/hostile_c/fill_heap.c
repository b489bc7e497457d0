/* expect: memory. Fills the heap. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>
int main(void) {
    for (int n = 0; n < 4096; n++) {
        char *block = malloc(1 << 20);
        if (!block) return 1;
        memset(block, n, 1 << 20);
    }
    puts("42");
    return 0;
}
