#include <stdio.h>
int main(void) {
    char name[L_tmpnam];
    puts(tmpnam(name) ? name : "");  /* CWE-377 */
    return 0;
}
