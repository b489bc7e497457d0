/* expect: failed. Ends a text for cppcheck alone. */
const char *s = "??/" /* ";
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
const char *t = "*/ ??/"";
