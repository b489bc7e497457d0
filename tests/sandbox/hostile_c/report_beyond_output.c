/* expect: report. Prints more than it may before its fault. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    static char line[1 << 16];
    signal(SIGXFSZ, SIG_IGN);
    memset(line, '4', sizeof line);
    for (int n = 0; n < 20; n++) fwrite(line, 1, sizeof line, stdout);
    fflush(stdout);
    char *volatile text = malloc(8);
    volatile int n = 9;
    text[n] = 1;
    return 0;
}
