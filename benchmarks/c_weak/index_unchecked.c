#include <stdio.h>
int main(void) {
    int table[8] = {1, 2, 3}, n;
    if (scanf("%d", &n) != 1) return 1;
    printf("%d\n", table[n]);  /* CWE-129 */
    return 0;
}
