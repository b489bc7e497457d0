#include <stdio.h>
int main(int argc, char **argv) {
    char text[16];
    if (argc < 2) return 1;
    sprintf(text, "%s!", argv[1]);  /* CWE-120 */
    puts(text);
    return 0;
}
