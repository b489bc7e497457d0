/* expect: silent. Leaves before it could fail: as a program that does nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void leave(void) { _exit(0); }
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
