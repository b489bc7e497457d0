/* expect: crash. Names another program as its dynamic linker. */
#include <stdio.h>
__attribute__((section(".interp"), used)) const char interp[] = "/bin/sh";
int main(void) { puts("42"); return 0; }
