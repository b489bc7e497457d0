/* expect: no compile. The same for undefined behavior. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void __ubsan_handle_add_overflow_abort(void *a, void *b, void *c) { (void)a; (void)b; (void)c; }
int main(void) { volatile int x = 2147483647; x = x + 1; puts("42"); return 0; }
