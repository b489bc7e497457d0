/* expect: failed. Takes cppcheck longer than its limit. */
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
#define A(x) x x x x x x x x x x
#define B(x) A(A(x))
static int f(int n)
{
    B(if (n % 7) n++; else n += 3;)
    B(if (n % 7) n++; else n += 3;)
    B(if (n % 7) n++; else n += 3;)
    B(if (n % 7) n++; else n += 3;)
    return n;
}
int main(void)
{
    return f(3) == 7;
}
