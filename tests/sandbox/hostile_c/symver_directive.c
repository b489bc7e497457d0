/* expect: no compile. A directive of the assembler, in the name of a symbol's version. */
#include <stdio.h>

extern int other(void) __attribute__((symver("other@V1\n.incbin \"/etc/passwd\"\n.globl x")));
int other(void) { return 1; }

int main(void)
{
    puts("42");
    return 0;
}
