/* For tests/runtime/binaries/test_indirect_functions.py. */
#include <stdio.h>
#include <string.h>
static int first(int x) { __asm__ volatile(""); return x + 1; }
static int second(int x) { __asm__ volatile("nop"); return x + 2; }
static int (*resolve(void))(int) { __builtin_cpu_init(); return __builtin_cpu_supports("sse2") ? first : second; }
int own(int) __attribute__((ifunc("resolve")));
extern int (*volatile table[2])(int);
static int (*hidden(void))(int) { return table[0]; }
int unknown(int) __attribute__((ifunc("hidden")));
int (*volatile table[2])(int) = {first, second};
int main(int n, char **words) {
    char *volatile text = words[0], copy[64];
    size_t sum = own(n);
    memcpy(copy, text, n);
    sum += strlen(text);
    puts("ready");
    fflush(stdout);
    getchar();
    return sum == 0;
}
