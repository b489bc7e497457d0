/* expect: silent. The same before the sanitizer has started. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void leave(void) { _exit(0); }
__attribute__((section(".preinit_array"), used)) static void (*first)(void) = leave;
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
