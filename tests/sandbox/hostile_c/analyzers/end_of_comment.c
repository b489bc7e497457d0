/* expect: failed. Ends a comment on two lines, which cppcheck does not see. */
/* *\
/
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
/* */
