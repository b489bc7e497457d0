/* expect: no compile. Leaves with success once there is a report. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void __asan_on_error(void) { _exit(0); }
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
