/* expect: no compile. The poison itself is taken away first. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#undef no_sanitize
#pragma GCC diagnostic ignored "-Wall"
__attribute__((no_sanitize("address")))
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
