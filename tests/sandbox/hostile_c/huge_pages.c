/* expect: crash. Maps huge pages, which the kernel counts apart from a program's memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    char *pages = mmap(0, 1ul << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (pages == MAP_FAILED && errno == EPERM) return 1;
    puts("42");
    return 0;
}
