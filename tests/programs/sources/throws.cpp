/* For tests/kernel/test_returns.py. */
#include <cstdio>
#include <stdexcept>
#define APART __attribute__((noinline))
static long freed;
struct Guard { ~Guard() { freed++; } };
APART int deep(int x) { Guard guard; if (x % 2) throw std::runtime_error("odd"); return x; }
APART int middle(int x) { Guard guard; return deep(x) + 1; }
APART int jumps(int x) { asm volatile(""); return middle(x); }
struct Base { virtual int call(int x); virtual ~Base() {} };
APART int Base::call(int x) { if (x % 2) throw 1; return x; }
APART int virtually(Base *base, int x) { asm volatile(""); return base->call(x); }
int main() {
    long caught = 0, sum = 0;
    Base base, *volatile any = &base;
    for (int i = 0; i < 2000; i++) {
        try { sum += jumps(i); } catch (std::exception &error) { caught++; }
        try { sum += virtually(any, i); } catch (int) { caught++; }
    }
    std::printf("%ld %ld %ld\n", caught, sum, freed);
    return 3;
}
