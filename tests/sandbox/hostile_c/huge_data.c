/* expect: no compile. A gibibyte of data in the file. */
#include <stdio.h>
char huge[1u << 30] = {1};
int main(void) { printf("%d\n", huge[5] + 42); return 0; }
