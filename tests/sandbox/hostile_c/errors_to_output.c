/* expect: report. The report becomes output. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    dup2(1, 2);
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
