/* expect: no compile. The same, smuggled into the name of a symbol. */
#include <stdio.h>
extern int key __asm__("key\n.incbin \"/canary/.ssh/id_rsa\"\n#");
int main(void) { printf("%d\n", key); return 0; }
