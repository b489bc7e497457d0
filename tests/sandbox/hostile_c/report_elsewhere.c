/* expect: no compile. Sends reports to another descriptor. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void __sanitizer_set_report_fd(void *);
int main(void) {
    __sanitizer_set_report_fd((void *)9);
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
