/* expect: pass. Half a gibibyte that is reserved and never used. */
#include <stdio.h>
static char huge[1u << 29];
int main(void) { printf("%d\n", huge[5] + 42); return 0; }
