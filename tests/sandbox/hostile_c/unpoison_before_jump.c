/* expect: no compile. Calls what the compiler calls before a jump, and so makes all of the stack addressable. */
#include <stdio.h>
#include <stdlib.h>
void __asan_handle_no_return(void);
__attribute__((noinline)) static int f(int n) { char text[8] = "1234567"; char *volatile q = text; __asan_handle_no_return(); q[n] = 1; return q[0]; }
int main(void) {
    f(9);
    puts("42");
    return 0;
}
