/* For tests/kernel/test_returns.py. */
#include <string.h>
static int first(int x) { __asm__ volatile(""); return x + 1; }
static int second(int x) { __asm__ volatile("nop"); return x + 2; }
static int (*resolve(void))(int) { __builtin_cpu_init(); return __builtin_cpu_supports("sse2") ? first : second; }
int own(int) __attribute__((ifunc("resolve")));
int main(int n, char **words) {
    char *volatile text = words[1];
    int sum = 0;
    for (int i = 0; i < 50; i++) sum += own(100 + i) + strlen(text);
    return sum == 0;
}
