/* expect: no compile. Asks to be called before the end. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void __sanitizer_set_death_callback(void (*)(void));
static void leave(void) { _exit(0); }
int main(void) {
    __sanitizer_set_death_callback(leave);
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
