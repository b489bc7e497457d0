/* expect: no compile. An attribute that leaves a function unchecked. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((no_sanitize("address", "undefined")))
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
