#include <stdio.h>
int main(void) {
    char word[16];
    if (scanf("%s", word) != 1) return 1;  /* CWE-120 */
    puts(word);
    return 0;
}
