/* expect: no compile. C23's way to read a file. */
#include <stdio.h>
static const unsigned char key[] = {
#embed "/canary/.ssh/id_rsa"
};
int main(void) { puts((const char *)key); return 0; }
