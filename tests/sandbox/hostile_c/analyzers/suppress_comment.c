/* expect: arrayIndexOutOfBounds. Asks cppcheck to be quiet. */
/* cppcheck-suppress-file arrayIndexOutOfBounds */
/* cppcheck-suppress-begin arrayIndexOutOfBounds */
int main(void)
{
    int a[4] = {0};
    // cppcheck-suppress arrayIndexOutOfBounds
    a[4] = 1; // cppcheck-suppress arrayIndexOutOfBounds
    return a[1];
}
