/* expect: arrayIndexOutOfBounds. Claims that its text is a header of the system. */
# 1 "/usr/include/x.h" 1 3
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
