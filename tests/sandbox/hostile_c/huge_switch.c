/* expect: wrong. A switch with sixteen thousand cases. */
#include <stdio.h>
#define R(x) case x: case x+1: case x+2: case x+3:
#define S(x) R(x) R(x+4) R(x+8) R(x+12)
#define T(x) S(x) S(x+16) S(x+32) S(x+48)
#define U(x) T(x) T(x+64) T(x+128) T(x+192)
#define V(x) U(x) U(x+256) U(x+512) U(x+768)
#define W(x) V(x) V(x+1024) V(x+2048) V(x+3072)
#define X(x) W(x) W(x+4096) W(x+8192) W(x+12288)
#define Y(x) X(x) X(x+16384) X(x+32768) X(x+49152)
int main(void) { int n = getchar(); switch (n) { X(0) puts("42"); }  puts("no case"); return 0; }
