/* expect: report. Claims the exit status of reports: a program can accuse itself only. */
#include <stdio.h>
int main(void) { puts("42"); return 197; }
