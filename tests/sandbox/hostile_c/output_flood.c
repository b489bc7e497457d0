/* expect: output limit. Prints without an end. */
#include <stdio.h>
int main(void) { for (;;) puts("42"); }
