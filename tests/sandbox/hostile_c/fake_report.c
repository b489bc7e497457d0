/* expect: crash. Prints a report: text alone is no finding. */
#include <stdio.h>
int main(void) {
    fputs("SUMMARY: AddressSanitizer: heap-buffer-overflow (x)\n", stderr);
    return 1;
}
