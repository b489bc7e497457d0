#include <stdlib.h>
int main(int argc, char **argv) {
    (void)argv;
    char *p = malloc(9);
    if (argc > 1) free(p);
    free(p);  /* CWE-415 */
    return 0;
}
