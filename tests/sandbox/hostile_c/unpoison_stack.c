/* expect: no compile. Calls what the compiler calls for variables that come into scope. */
#include <stdio.h>
#include <stdlib.h>
void __asan_unpoison_stack_memory(unsigned long, unsigned long);
int main(void) {
    volatile int n = 9;
    char *volatile text = malloc(8);
    __asan_unpoison_stack_memory((unsigned long)text, 64);
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    puts("42");
    return 0;
}
