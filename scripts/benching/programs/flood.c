/* flood RESULT CALLS THREADS: CALLS calls of getsid(0) at the full rate, shared by THREADS threads, each on a processor of its own.
 * Writes the processor time of this process in microseconds to RESULT. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static long each;

static void *flood(void *processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((long)processor, &one);
    sched_setaffinity(0, sizeof one, &one);
    for (long n = 0; n < each; n++)
        syscall(SYS_getsid, 0);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    struct rusage used;
    FILE *result;
    long count = argc > 3 ? atol(argv[3]) : 1, processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (argc < 3 || count < 1 || count > 64)
        return 2;
    each = atol(argv[2]) / count;
    for (long n = 0; n < count; n++)
        pthread_create(&threads[n], NULL, flood, (void *)(processors - 1 - n % processors));
    for (long n = 0; n < count; n++)
        pthread_join(threads[n], NULL);
    getrusage(RUSAGE_SELF, &used);
    result = fopen(argv[1], "w");
    if (!result)
        return 1;
    fprintf(result, "%ld\n", (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return fclose(result) ? 1 : 0;
}
