/* expect: no compile. A forbidden name of two mebibytes, which the reason would repeat. */
#define P(a, b) a##b
#define Q(a, b) P(a, b)
#define A0 aaaaaaaaaaaaaaaa
#define A1 Q(A0, A0)
#define A2 Q(A1, A1)
#define A3 Q(A2, A2)
#define A4 Q(A3, A3)
#define A5 Q(A4, A4)
#define A6 Q(A5, A5)
#define A7 Q(A6, A6)
#define A8 Q(A7, A7)
#define A9 Q(A8, A8)
#define A10 Q(A9, A9)
#define A11 Q(A10, A10)
#define A12 Q(A11, A11)
#define A13 Q(A12, A12)
#define A14 Q(A13, A13)
#define A15 Q(A14, A14)
#define A16 Q(A15, A15)
#define A17 Q(A16, A16)
#include <stdio.h>
int Q(__asan_, A17);
int main(void) { puts("42"); return 0; }
