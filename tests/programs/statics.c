/* statics [TIMES]: passes static probes TIMES times (3). twice:spot(n) has two places, first with an int, then with an unsigned char;
 * first:same(n) and second:same(n) share a name; forms:memory() has arguments in memory, by register and index, and constants. */
#include <stdlib.h>

#include "probes.h"

static long table[16];

__attribute__((always_inline)) static inline void spot(int n) { PROBE1("twice", "spot", n); }

void one(int n) { spot(n); }
void two(int n) { spot(100 + n); }

void forms(long n) {
    volatile short word = (short)-n;
    table[n & 15] = 1000 + n;
    __asm__ volatile(PROBE_NOTE("forms", "memory", "0", "-2@%0 8@%1 -1@$-3 8@(%2,%3,8) 4f@%%xmm0")
                     : : "m"(word), "m"(table[n & 15]), "r"(table), "r"(n & 15));
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 3;
    for (int n = 0; n < times; n++) {
        one(n);
        two(n);
        PROBE1("first", "same", n);
        PROBE1("second", "same", n * 2);
        forms(n);
    }
    return 0;
}
