/* expect: no compile. Asks whether a file exists; it does, and the compiler gives up. */
#include <stdio.h>
int main(void) {
#if __has_include("/canary/.ssh/id_rsa")
    puts("there");
#else
    puts("not there");
#endif
    return 0;
}
