/* expect: no compile. Options of AddressSanitizer from the program. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
const char *__asan_default_options(void) { return "halt_on_error=0:exitcode=0"; }
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
