/* expect: no compile. The same in its other spelling. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((__no_sanitize_address__, __no_sanitize_undefined__))
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
