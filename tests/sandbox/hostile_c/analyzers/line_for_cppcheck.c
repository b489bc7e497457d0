/* expect: arrayIndexOutOfBounds. Moves its lines to a file whose name is a report. */
#line 3 "a\nmissingIncludeSystem 7 b"
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
