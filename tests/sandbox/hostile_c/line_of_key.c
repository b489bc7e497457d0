/* expect: no compile. An error in a line of another file, which compilers like to show. */
#include <stdio.h>
#line 1 "/canary/.ssh/id_rsa"
int main(void) { return undeclared; }
