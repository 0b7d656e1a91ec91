/* takeover TIMES: waits until the USDT probe sample:taken is traced, calls step() twice and passes the probe once; then
 * a thread that is not the first one executes the program again, until there are TIMES runs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "probes.h"

PROBE_SEMAPHORE(sample_taken_semaphore);

int step(int round) {
    return round + 1;
}

static void *again(void *argument) {
    char left[16];
    snprintf(left, sizeof left, "%d", *(int *)argument);
    execl("/proc/self/exe", "takeover", left, NULL);
    exit(1);
}

int main(int argc, char **argv) {
    int left = (argc > 1 ? atoi(argv[1]) : 1) - 1;
    pthread_t thread;
    while (!sample_taken_semaphore)
        usleep(1000);
    step(step(0));
    PROBE1_SEMAPHORE("sample", "taken", sample_taken_semaphore, left);
    if (left > 0 && pthread_create(&thread, NULL, again, &left) == 0)
        pthread_join(thread, NULL);
    return 0;
}
