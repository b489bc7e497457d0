/* expect: failed. Ends a line for cppcheck alone. */
// x  /*
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
//  */
