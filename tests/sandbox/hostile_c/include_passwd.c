/* expect: no compile. Reads a file through the compiler's messages. */
#include "/etc/passwd"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
