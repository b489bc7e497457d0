/* expect: output limit. The same on standard error. */
#include <stdio.h>
int main(void) { for (;;) fputs("42\n", stderr); }
