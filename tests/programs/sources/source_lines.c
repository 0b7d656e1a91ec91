/* For tests/kernel/test_saved_runs.py. */
#include <stdlib.h>
__attribute__((noinline)) int leaf(int n) { __asm__ volatile("" : "+r"(n)); return n; }
static inline __attribute__((always_inline)) int within(int n) {
    return leaf(n) + 1;
}
__attribute__((noinline)) int outer(int n) {
    return within(n) + 2;
}
int main(int argc, char **argv) {
    int total = 0;
    for (int n = 0; n < atoi(argv[argc - 1]); n++)
        total += outer(n);
    return total < 0;
}
