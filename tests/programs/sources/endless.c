/* For tests/kernel/test_symbols.py. */
#include <unistd.h>
__attribute__((noinline)) int turn(void) { return getppid() + 1; }
__attribute__((noinline)) int turns(void) { return turn() + 1; }
int main(void) { for (long n = 0;; n++) { turns(); usleep(5000); if (n < 3) write(1, "x", 1); } }
