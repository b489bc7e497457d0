/* expect: failed. More conditions than cppcheck tries. */
#ifdef A0
int a0;
#endif
#ifdef A1
int a1;
#endif
#ifdef A2
int a2;
#endif
#ifdef A3
int a3;
#endif
#ifdef A4
int a4;
#endif
#ifdef A5
int a5;
#endif
#ifdef A6
int a6;
#endif
#ifdef A7
int a7;
#endif
#ifdef A8
int a8;
#endif
#ifdef A9
int a9;
#endif
#ifdef A10
int a10;
#endif
#ifdef A11
int a11;
#endif
#ifdef A12
int a12;
#endif
#ifdef A13
int a13;
#endif
#ifdef A14
int a14;
#endif
#ifdef A15
int a15;
#endif
#ifdef A16
int a16;
#endif
#ifdef A17
int a17;
#endif
#ifdef A18
int a18;
#endif
#ifdef A19
int a19;
#endif
#include <stdio.h>
#ifdef _STDIO_H
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
#endif
