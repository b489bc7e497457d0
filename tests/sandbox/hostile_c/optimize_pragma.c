/* expect: report. Options of the optimizer cannot switch checks off. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
_Pragma("GCC optimize (\"no-sanitize=all\")")
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
