/* expect: failed. Cppcheck cannot read what gcc can. */
__extension__ typedef unsigned __int128 u128;
int h(int n)
{
    void *l = &&out;
    goto *l;
out:
    return n ?: 3;
}
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
