/* For tests/kernel/test_selection.py. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "probes.h"
PROBE_SEMAPHORE(sample_guarded_semaphore);
__attribute__((noinline)) int work(int n) {
    __asm__ volatile("");
    return n + 1;
}
static void *run(void *unused) {
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        int sum = 0;
        for (int i = 0; i < atoi(line); i++) {
            sum += work(i);
            PROBE1("sample", "one", i);
            if (sample_guarded_semaphore)
                PROBE1_SEMAPHORE("sample", "guarded", sample_guarded_semaphore, i);
        }
        printf("%d\n", sum);
        fflush(stdout);
    }
    exit(0);
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_exit(NULL);
}
