/* expect: failed. Makes a report that is too long. */
#define A(x) x x x x x x x x x x
#define B(x) A(A(A(x)))
int main(void)
{
    volatile int n = 0;
    B(n = 1 << 70;)
    B(n = 1 << 71;)
    B(n = 1 << 72;)
    return 0;
}
