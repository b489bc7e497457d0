/* expect: no compile. Tells the sanitizer that all memory is fine. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void __asan_unpoison_memory_region(void const volatile *, unsigned long);
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    __asan_unpoison_memory_region(text, 99);
    text[n] = 1;
    puts("42");
    return 0;
}
