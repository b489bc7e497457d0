#include <stdio.h>
int main(void) {
    char line[256];
    if (!fgets(line, sizeof line, stdin)) return 1;
    printf(line);  /* CWE-134 */
    return 0;
}
