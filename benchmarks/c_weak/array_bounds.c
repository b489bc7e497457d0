#include <stdio.h>
int main(void) {
    int a[4] = {0};
    for (int i = 0; i <= 4; i++) a[i] = i;  /* CWE-121 */
    printf("%d\n", a[1]);
    return 0;
}
