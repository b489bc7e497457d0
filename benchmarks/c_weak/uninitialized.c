#include <stdio.h>
int main(int argc, char **argv) {
    int n;
    (void)argv;
    if (argc > 5) n = 2;
    printf("%d\n", n);  /* CWE-457 */
    return 0;
}
