/* nested_calls THREADS ROUNDS: calls work(id, deep), which calls itself deep times (0 to 199) and returns id ^ 0x5a5a.
 *
 * Some calls are left by longjmp. Each thread counts what it enters and leaves, and adds up the time around each call
 * that returned, inside (from its first to its last statement) and outside; the sums of all are printed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static __thread unsigned long entries, returns, inside, outside;
static __thread jmp_buf back;
static unsigned long sums[4];
static long rounds;

static unsigned long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return time.tv_sec * 1000000000ul + time.tv_nsec;
}

__attribute__((noinline, noclone)) long work(long id, long deep) {
    unsigned long begin = now();
    entries++;
    if (deep > 0) {
        unsigned long before = now();
        long below = work(id + 1, deep - 1);
        outside += now() - before;
        if (below != ((id + 1) ^ 0x5a5a))
            abort();
    } else if (deep == -1) {
        longjmp(back, 1);
    } else if (deep < 0) {
        work(id + 1, deep + 1);
    }
    returns++;
    inside += now() - begin;
    return id ^ 0x5a5a;
}

static void *run(void *unused) {
    for (long i = 0; i < rounds; i++) {
        unsigned long before = now();
        work(i, i % 200);
        outside += now() - before;
        if (i % 100 == 7 && !setjmp(back))
            work(i, -1 - i / 100 % 5);
    }
    unsigned long own[] = {entries, returns, inside, outside};
    for (int i = 0; i < 4; i++)
        __atomic_add_fetch(&sums[i], own[i], __ATOMIC_SEQ_CST);
    return unused;
}

int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    pthread_t started[64];
    rounds = atol(argv[2]);
    for (int i = 0; i < threads; i++)
        pthread_create(&started[i], NULL, run, NULL);
    for (int i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    printf("entries=%lu returns=%lu inside=%lu outside=%lu\n", sums[0], sums[1], sums[2], sums[3]);
    return argc < 3;
}
