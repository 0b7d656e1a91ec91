/* flood TIMES [THREADS]: TIMES calls of getppid(), as fast as they go, in each of THREADS threads (1 when not given); SIGUSR1 ends it
 * before. Prints the number of calls and the nanoseconds they took. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long times, made;
static volatile sig_atomic_t ended;

static void end(int number) {
    (void)number;
    ended = 1;
}

static void *flood(void *unused) {
    long n;
    for (n = 0; n < times && !ended; n++)
        syscall(SYS_getppid);
    __atomic_add_fetch(&made, n, __ATOMIC_RELAXED);
    return unused;
}

int main(int argc, char **argv) {
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t started[64];
    struct timespec begin, done;
    times = argc > 1 ? atol(argv[1]) : 100000;
    if (threads > 64)
        return 1;
    signal(SIGUSR1, end);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int n = 1; n < threads; n++)
        pthread_create(&started[n], NULL, flood, NULL);
    flood(NULL);
    for (int n = 1; n < threads; n++)
        pthread_join(started[n], NULL);
    clock_gettime(CLOCK_MONOTONIC, &done);
    printf("%ld %ld\n", made, (done.tv_sec - begin.tv_sec) * 1000000000L + done.tv_nsec - begin.tv_nsec);
    return 0;
}
