/* expect: none. Paths that double at each step: the analyzer stops following them, and finds nothing. */
#include <stdlib.h>
#include <stdio.h>
int main(void)
{
    int n = 0, c;
    if ((c = getchar()) == 0) n += 0;
    if ((c = getchar()) == 1) n += 1;
    if ((c = getchar()) == 2) n += 2;
    if ((c = getchar()) == 3) n += 3;
    if ((c = getchar()) == 4) n += 4;
    if ((c = getchar()) == 5) n += 5;
    if ((c = getchar()) == 6) n += 6;
    if ((c = getchar()) == 7) n += 7;
    if ((c = getchar()) == 8) n += 8;
    if ((c = getchar()) == 9) n += 9;
    if ((c = getchar()) == 10) n += 10;
    if ((c = getchar()) == 11) n += 11;
    if ((c = getchar()) == 12) n += 12;
    if ((c = getchar()) == 13) n += 13;
    if ((c = getchar()) == 14) n += 14;
    if ((c = getchar()) == 15) n += 15;
    if ((c = getchar()) == 16) n += 16;
    if ((c = getchar()) == 17) n += 17;
    if ((c = getchar()) == 18) n += 18;
    if ((c = getchar()) == 19) n += 19;
    if ((c = getchar()) == 20) n += 20;
    if ((c = getchar()) == 21) n += 21;
    if ((c = getchar()) == 22) n += 22;
    if ((c = getchar()) == 23) n += 23;
    if ((c = getchar()) == 24) n += 24;
    if ((c = getchar()) == 25) n += 25;
    if ((c = getchar()) == 26) n += 26;
    if ((c = getchar()) == 27) n += 27;
    if ((c = getchar()) == 28) n += 28;
    if ((c = getchar()) == 29) n += 29;
    if ((c = getchar()) == 30) n += 30;
    if ((c = getchar()) == 31) n += 31;
    if ((c = getchar()) == 32) n += 32;
    if ((c = getchar()) == 33) n += 33;
    if ((c = getchar()) == 34) n += 34;
    if ((c = getchar()) == 35) n += 35;
    if ((c = getchar()) == 36) n += 36;
    if ((c = getchar()) == 37) n += 37;
    if ((c = getchar()) == 38) n += 38;
    if ((c = getchar()) == 39) n += 39;
    int *p = malloc(sizeof *p);
    if (!p) return 1;
    free(p);
    return n == 7 ? *p : 0;
}
