/* expect: no compile. Defines what the checks call. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void __asan_report_store1(void *at) { (void)at; }
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
