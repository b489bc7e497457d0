/* expect: report. Has an allocator of its own, whose memory is not of the sanitizer. */
#include <stdio.h>
#include <stddef.h>
static char pool[1<<20]; static size_t used;
void *malloc(size_t n) { void *p = pool + used; used += (n + 15) & ~15ul; return p; }
void free(void *p) { (void)p; }
int main(void) { char *volatile p = malloc(8); p[9] = 1; free(p); free(p); puts("42"); return 0; }
