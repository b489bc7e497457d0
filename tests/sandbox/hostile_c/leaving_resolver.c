/* expect: report. Leaves while addresses are resolved, before the sanitizer has started. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int impl(void) { return 42; }
static int (*resolve(void))(void) { write(1, "42\n", 3); _exit(0); return impl; }
int f(void) __attribute__((ifunc("resolve")));
int main(void) { char *volatile p = malloc(3); p[4]=1; fprintf(stderr, "%d", p[4]); printf("%d\n", f()); return 0; }
