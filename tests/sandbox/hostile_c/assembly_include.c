/* expect: no compile. The assembler includes text. */
#include <stdio.h>
__asm__(".include \"/canary/.ssh/id_rsa\"");
int main(void) { puts("42"); return 0; }
