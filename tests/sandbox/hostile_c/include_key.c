/* expect: no compile. The same with a user's file. */
#include "/canary/.ssh/id_rsa"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
