/* expect: no compile. A pragma that loads a file as a precompiled header. */
#pragma GCC pch_preprocess "/canary/.ssh/id_rsa"
#include <stdio.h>
int main(void) { puts("42"); return 0; }
