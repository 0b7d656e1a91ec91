/* waits RESULT KIND CHUNKS CALLS: CHUNKS times CALLS system calls ("call"), or turns of two threads that wait for each other ("switch"), on one
 * processor. Writes the wall time of each chunk in nanoseconds to RESULT, a number a line: what stops the program takes no processor time of it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static void *answer(void *unused) {
    char byte;
    while (read(there[0], &byte, 1) == 1)
        if (write(back[1], &byte, 1) != 1)
            break;
    return unused;
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words) {
    if (count < 5)
        return 2;
    FILE *result = fopen(words[1], "w");
    int switches = !strcmp(words[2], "switch"), chunks = atoi(words[3]), calls = atoi(words[4]);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_t thread;
    if (!result || pipe(there) || pipe(back) || pthread_create(&thread, NULL, answer, NULL))
        return 1;
    for (int chunk = 0; chunk < chunks; chunk++) {
        long long begin = now();
        for (int number = 0; number < calls; number++) {
            char byte = 0;
            if (!switches)
                syscall(SYS_getsid, 0);
            else if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
                return 1;
        }
        fprintf(result, "%lld\n", now() - begin);
    }
    close(there[1]);
    pthread_join(thread, NULL);
    return fclose(result) != 0;
}
