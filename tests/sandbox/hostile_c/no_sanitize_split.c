/* expect: no compile. The same, on two lines. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((no_sani\
tize_address))
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
