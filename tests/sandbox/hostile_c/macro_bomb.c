/* expect: no compile. Text that doubles forty times. */
#define A0 A1 A1
#define A1 A2 A2
#define A2 A3 A3
#define A3 A4 A4
#define A4 A5 A5
#define A5 A6 A6
#define A6 A7 A7
#define A7 A8 A8
#define A8 A9 A9
#define A9 A10 A10
#define A10 A11 A11
#define A11 A12 A12
#define A12 A13 A13
#define A13 A14 A14
#define A14 A15 A15
#define A15 A16 A16
#define A16 A17 A17
#define A17 A18 A18
#define A18 A19 A19
#define A19 A20 A20
#define A20 A21 A21
#define A21 A22 A22
#define A22 A23 A23
#define A23 A24 A24
#define A24 A25 A25
#define A25 A26 A26
#define A26 A27 A27
#define A27 A28 A28
#define A28 A29 A29
#define A29 A30 A30
#define A30 A31 A31
#define A31 A32 A32
#define A32 A33 A33
#define A33 A34 A34
#define A34 A35 A35
#define A35 A36 A36
#define A36 A37 A37
#define A37 A38 A38
#define A38 A39 A39
#define A39 A40 A40
#define A40 +1
#include <stdio.h>
int main(void) { printf("%d\n", 0 A0); return 0; }
