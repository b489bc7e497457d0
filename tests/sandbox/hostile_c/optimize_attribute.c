/* expect: report. The same for a function. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((optimize("no-sanitize=address", "no-sanitize=undefined")))
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
