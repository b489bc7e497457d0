/* expect: no compile. The same, smuggled into the name of a section. */
#include <stdio.h>
__attribute__((section(".data\n.incbin \"/canary/.ssh/id_rsa\"\n#"))) char key[64] = "x";
int main(void) { puts(key); return 0; }
