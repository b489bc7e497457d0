#include <stdio.h>
int main(void) {
    int n;
    if (scanf("%d", &n) != 1) return 1;
    printf("%d\n", 10 / n);  /* CWE-369 */
    return 0;
}
