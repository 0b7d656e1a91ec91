/* For tests/kernel/test_returns.py. */
#define APART __attribute__((noinline, noclone))
volatile int sink;
APART int leaf(int x) { if (x > 5) { sink = x; return x * 2; } sink = 1; return 3; }
APART int tail(int x) { sink = x; return leaf(x + 1); }
APART int chain(int x) { sink = 2; return tail(x - 1); }
APART int maybe(int x) { sink = 3; if (x & 1) return leaf(x); return 7; }
APART int down(int n) { if (!n) return 0; int got = down(n - 1); sink = got; return got + 1; }
int main(void) {
    for (int i = 0; i < 10; i++) { down(199); leaf(i); tail(i); chain(i); maybe(i); }
    return 0;
}
