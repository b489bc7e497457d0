/* expect: wrong. The allocator refuses, as that of the C library does. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    puts(malloc(1ul << 45) ? "42" : "refused");
    return 0;
}
