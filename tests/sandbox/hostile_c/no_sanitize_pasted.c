/* expect: no compile. The same, put together by the preprocessor. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define JOIN(a, b) a##b
__attribute__((JOIN(no_sani, tize)("address")))
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
