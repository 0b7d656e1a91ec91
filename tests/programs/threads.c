/* threads [THREADS [TIMES]]: THREADS threads (3) named worker-0, worker-1 …; each calls step(thread, round) TIMES times (5). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int times = 5;

int step(int thread, int round) {
    __asm__ volatile("" : "+r"(round));
    return thread * 100 + round;
}

static void *work(void *argument) {
    long thread = (long)argument;
    volatile int total = 0;
    for (int round = 0; round < times; round++)
        total += step((int)thread, round);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 3;
    pthread_t started[64];
    if (argc > 2)
        times = atoi(argv[2]);
    if (threads > 64)
        return 1;
    for (long n = 0; n < threads; n++) {
        char name[16];
        pthread_create(&started[n], NULL, work, (void *)n);
        snprintf(name, sizeof name, "worker-%ld", n);
        pthread_setname_np(started[n], name);
    }
    for (int n = 0; n < threads; n++)
        pthread_join(started[n], NULL);
    return 0;
}
