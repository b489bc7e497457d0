#include <stdio.h>
char *gets(char *text);
int main(void) {
    char line[16];
    gets(line);  /* CWE-242 */
    puts(line);
    return 0;
}
