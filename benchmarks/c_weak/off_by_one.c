#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *copy = malloc(5);
    if (!copy) return 1;
    strcpy(copy, "hello");  /* CWE-122 */
    puts(copy);
    free(copy);
    return 0;
}
