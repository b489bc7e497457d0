/* expect: no compile. The name of the file is made by macros, so no text of the program has it. */
#define TEXT(x) #x
#define NAME(x) TEXT(x)
#define ROOT /etc
#include NAME(ROOT/passwd)
#include <stdio.h>

int main(void)
{
    puts("42");
    return 0;
}
