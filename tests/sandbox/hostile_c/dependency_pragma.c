/* expect: no compile. A pragma that looks at the date of a file. */
#pragma GCC dependency "/canary/.ssh/id_rsa"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
