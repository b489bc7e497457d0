/* expect: arrayIndexOutOfBounds. Has the fault only for gcc. */
#ifdef __GNUC__
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
#else
int main(void) { return 0; }
#endif
