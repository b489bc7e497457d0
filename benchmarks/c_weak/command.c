#include <stdio.h>
#include <stdlib.h>
int main(void) {
    char line[256];
    if (!fgets(line, sizeof line, stdin)) return 1;
    return system(line);  /* CWE-78 */
}
