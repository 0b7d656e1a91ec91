/* paced RATE TIMES: RATE times a second, TIMES in all, calls step(round), passes the USDT probe paced:step(round) and calls getppid()
 * and prctl(PR_SET_NAME), which passes the tracepoint task_rename. When it was kept from running it makes up for it. Prints TIMES. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "probes.h"

__attribute__((noinline)) long step(long round) {
    __asm__ volatile("" ::: "memory");
    return round + 1;
}

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv) {
    long rate = argc > 1 ? atol(argv[1]) : 1000, times = argc > 2 ? atol(argv[2]) : 1000;
    long begin = now(), done = 0;
    struct timespec pause = {0, 2000000};
    while (done < times) {
        long due = (now() - begin) * rate / 1000000000L;
        for (; done < due && done < times; done++) {
            step(done);
            PROBE1("paced", "step", done);
            syscall(SYS_getppid);
            prctl(PR_SET_NAME, "paced");
        }
        nanosleep(&pause, NULL);
    }
    printf("%ld\n", times);
    return 0;
}
