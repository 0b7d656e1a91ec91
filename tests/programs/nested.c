/* nested [ROUNDS]: functions that call each other and themselves, with known sleeps. Each round:
 *
 *   work_upper sleeps 10 ms and calls work_lower twice, which sleeps 20 ms
 *   work_again(3) calls itself down to work_again(0): 4 calls, each sleeps 5 ms
 *   work_catch calls work_jump, which returns by longjmp, and sleeps 3 ms
 *   a thread ends by pthread_exit inside of work_leave
 *
 * At the end it prints the milliseconds that it measured inside of all work_upper, work_lower and outermost work_again. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static jmp_buf back;
static double in_upper, in_lower, in_again;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e3 + at.tv_nsec / 1e6;
}

static void rest(long ms) {
    struct timespec length = {0, ms * 1000000};
    nanosleep(&length, NULL);
}

int work_lower(int n) {
    double start = now();
    rest(20);
    in_lower += now() - start;
    return n;
}

int work_upper(int n) {
    double start = now();
    rest(10);
    int sum = work_lower(n) + work_lower(n + 1);
    in_upper += now() - start;
    return sum;
}

int work_again(int n) {
    rest(5);
    return n ? work_again(n - 1) + 1 : 0;
}

int work_jump(int n) {
    if (n >= 0)
        longjmp(back, 1);
    return n;
}

int work_catch(int n) {
    if (!setjmp(back))
        return work_jump(n);
    rest(3);
    return 0;
}

void *work_leave(void *nothing) {
    if (!nothing)
        pthread_exit(NULL);
    return nothing;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    volatile int total = 0;
    for (int round = 0; round < rounds; round++) {
        pthread_t thread;
        total += work_upper(round);
        double start = now();
        total += work_again(3);
        in_again += now() - start;
        total += work_catch(round);
        if (!pthread_create(&thread, NULL, work_leave, NULL))
            pthread_join(thread, NULL);
    }
    printf("upper %.3f lower %.3f again %.3f\n", in_upper, in_lower, in_again);
    return total == -1;
}
