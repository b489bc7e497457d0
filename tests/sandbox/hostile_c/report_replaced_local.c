/* expect: no compile. The same, in this file only. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void __asan_report_store1(unsigned long at) { (void)at; }
void (*keep)(unsigned long) = __asan_report_store1;
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
