#include <stdio.h>
#include <string.h>
int main(void) {
    char line[256], name[8];
    if (!fgets(line, sizeof line, stdin)) return 1;
    strcpy(name, line);  /* CWE-121 */
    puts(name);
    return 0;
}
