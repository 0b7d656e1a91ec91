/* naps [TIMES [MILLISECONDS]]: sleeps TIMES (5) times for MILLISECONDS (20) in nap(). Prints the nanoseconds that passed in all. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

long nap(long milliseconds) {
    struct timespec length = {milliseconds / 1000, milliseconds % 1000 * 1000000}, before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
    clock_gettime(CLOCK_MONOTONIC, &after);
    return (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 5;
    long milliseconds = argc > 2 ? atol(argv[2]) : 20, passed = 0;
    for (int number = 0; number < times; number++)
        passed += nap(milliseconds);
    printf("%ld\n", passed);
    return 0;
}
