/* For tests/kernel/test_returns.py. */
int down(int n);
volatile int sink;
__attribute__((noinline)) int last(int x) { sink = x; return x; }
int (*volatile again)(int) = down, (*volatile ends)(int) = last;
__attribute__((noinline)) int down(int n) { if (!n) return ends(n); sink = again(n - 1); return ends(sink + 1); }
int main(void) { for (int i = 0; i < 10; i++) down(199); return 0; }
