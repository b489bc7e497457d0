/* expect: no compile. Recursion of the parser. */
#include <stdio.h>
#define A(x) ((((((((((x))))))))))
#define B(x) A(A(A(A(A(A(A(A(A(A(x))))))))))
#define C(x) B(B(B(B(B(B(B(B(B(B(x))))))))))
#define L ((((((((((((((((((((((((((((((((
#define M L L L L L L L L L L L L L L L L
#define N M M M M M M M M M M M M M M M M
#define O N N N N N N N N N N N N N N N N
int main(void) { return O 1; }
