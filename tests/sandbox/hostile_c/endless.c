/* expect: timeout. Runs forever. */
int main(void) { for (volatile int n = 0;; n = 1 - n) {} }
