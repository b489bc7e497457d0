/* expect: report. Nobody can read the report. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    close(2);
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
