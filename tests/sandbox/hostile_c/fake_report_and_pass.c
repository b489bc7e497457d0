/* expect: pass. A report that is printed changes nothing. */
#include <stdio.h>
int main(void) {
    fputs("SUMMARY: AddressSanitizer: heap-buffer-overflow (x)\n", stderr);
    puts("42");
    return 0;
}
