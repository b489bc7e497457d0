/* expect: pass. Makes machine code at run time. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
    unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    memcpy(page, code, sizeof code);
    int (*volatile answer)(void) = (int (*)(void))page;
    printf("%d\n", answer());
    return 0;
}
