/* For tests/runtime/stacks/test_exits.py. */
#include <stdio.h>
#define APART __attribute__((noinline, noclone))
typedef int (*function)(int);
volatile function chosen;
volatile int sink;
int leaf(int x);
APART int leaf(int x) { if (x > 5) { sink = x; return x * 2; } sink = 1; return 3; }
APART int tail(int x) { sink = x; return leaf(x + 1); }
APART int chain(int x) { sink = 2; return tail(x - 1); }
APART int maybe(int x) { sink = 3; if (x & 1) return leaf(x); return 7; }
APART int pointer(int x) { sink = 4; return chosen(x); }
APART int other_file(int x) { sink = 5; return putchar(x); }
APART int through(int x) { sink = 6; return other_file(x + 1); }
APART __attribute__((noreturn)) void never(void) { sink = 7; __builtin_trap(); }
APART int rare(int x) {
    if (__builtin_expect(x == 77, 0)) { printf("rare %d\n", x); sink = fputs("very", stderr); return sink + x; }
    sink = 8; return x;
}
APART int table(int x) {
    switch (x) {
    case 0: sink = 11; return 9; case 1: puts("b"); return 4; case 2: sink = 3; return 12; case 3: sink = 8; return 1;
    case 4: sink = 21; return 6; case 5: puts("d"); return 3; case 6: sink = 4; return 22; case 7: sink = 9; return 2;
    }
    return sink;
}
int main(int n, char **v) {
    chosen = leaf;
    return leaf(n) + tail(n) + chain(n) + maybe(n) + pointer(n) + through(n) + rare(n) + table(n);
}
