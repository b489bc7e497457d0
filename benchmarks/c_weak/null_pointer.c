#include <stdio.h>
int main(int argc, char **argv) {
    int *p = NULL, n = 3;
    (void)argv;
    if (argc < 3) p = &n;
    printf("%d\n", *p);  /* CWE-476 */
    return 0;
}
