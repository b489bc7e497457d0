/* expect: report. Hides the kind of its fault behind a kind that does not exist. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    fputs("SUMMARY: AddressSanitizer: nothing-at-all (x)\n", stderr);
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
