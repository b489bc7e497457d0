/* expect: no compile. Instructions that no sanitizer sees. */
#include <stdio.h>
int main(void) {
    int x = 41;
    __asm__ volatile("incl %0" : "+r"(x));
    printf("%d\n", x);
    return 0;
}
