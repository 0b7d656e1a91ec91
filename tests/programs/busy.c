/* busy [MILLISECONDS]: computes for that long (500) by its own processor time, all of it in hot() <- warm() <- main(); hot() has a frame, since it calls. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void nothing(void) { __asm__ volatile(""); }

unsigned long hot(unsigned long seed) {
    for (int n = 0; n < 2000000; n++)
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    nothing();
    return seed;
}

unsigned long warm(unsigned long seed) { return hot(seed) + 1; }

int main(int argc, char **argv) {
    long end = now() + (argc > 1 ? atol(argv[1]) : 500);
    volatile unsigned long sink = 1;
    while (now() < end)
        sink = warm(sink);
    return 0;
}
