/* expect: arrayIndexOutOfBounds. Has cppcheck see a report, in names and texts. */
#pragma message("nullPointer 3")
static const char text[] = "\nnullPointer 3\n";
int nullPointer(void) { return text[0]; }
int main(void)
{
    int a[4] = {0};
    a[4] = 1;
    return a[1];
}
