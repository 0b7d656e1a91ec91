/*
 * Work with known shares: 70, 20 and 10 % of the time are spent in seventy(), twenty() and ten().
 *
 *   shares SECONDS WAY...    SECONDS of processor time in each way:
 *     threads:MS    threads that live for MS milliseconds, one after another
 *     forks:MS      processes likewise
 *     pool          four threads that take pieces of 3 ms from a queue
 *     timer:HZ      pieces of half a period, each begun by a timer
 *
 * The thread's name is the way. Prints a line for each: the way, and the processor time that it took in milliseconds.
 */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The same instructions at the same alignment, so that a turn takes the same time in each. */
#define WORK(name) \
    __attribute__((noinline, aligned(64))) void name(unsigned long turns) { \
        for (volatile unsigned long turn = 0; turn < turns; turn++) { \
        } \
    }

WORK(seventy)
WORK(twenty)
WORK(ten)

static double turns_a_ms;

static double milliseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void calibrate(void) {
    for (int round = 0; round < 5; round++) {
        double begin = milliseconds(CLOCK_THREAD_CPUTIME_ID);
        ten(2000000);
        double speed = 2000000 / (milliseconds(CLOCK_THREAD_CPUTIME_ID) - begin);
        turns_a_ms = speed > turns_a_ms ? speed : turns_a_ms;
    }
}

static void work(double ms) {
    unsigned long turns = ms * turns_a_ms / 10;
    seventy(7 * turns);
    twenty(2 * turns);
    ten(turns);
}

static void *one(void *ms) {
    work(*(double *)ms);
    return NULL;
}

static void threads(double ms, int count) {
    for (int number = 0; number < count; number++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, one, &ms)) exit(1);
        pthread_join(thread, NULL);
    }
}

static void forks(double ms, int count) {
    for (int number = 0; number < count; number++) {
        pid_t child = fork();
        if (!child) {
            work(ms);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

static int left;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *pooled(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        int mine = left-- > 0;
        pthread_mutex_unlock(&lock);
        if (!mine) return NULL;
        work(3);
    }
}

static void pool(int count) {
    pthread_t members[4];
    left = count;
    for (int number = 0; number < 4; number++)
        if (pthread_create(&members[number], NULL, pooled, NULL)) exit(1);
    for (int number = 0; number < 4; number++) pthread_join(members[number], NULL);
}

static void timer(int hz, int count) {
    int clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec every = {{0, 1000000000 / hz}, {0, 1000000000 / hz}};
    timerfd_settime(clock, 0, &every, NULL);
    for (int number = 0; number < count; number++) {
        uint64_t times;
        if (read(clock, &times, sizeof times) < 0) exit(1);
        work(500.0 / hz);
    }
    close(clock);
}

static double used(void) {
    double sum = 0;
    for (int who = RUSAGE_CHILDREN; who <= RUSAGE_SELF; who++) {
        struct rusage usage;
        getrusage(who, &usage);
        sum += usage.ru_utime.tv_sec * 1e3 + usage.ru_utime.tv_usec / 1e3;
    }
    return sum;
}

int main(int count, char **words) {
    double ms = 1e3 * atof(words[1]);
    prctl(PR_SET_NAME, "calibrates");
    calibrate();
    for (int number = 2; number < count; number++) {
        char *way = words[number], *size = strchr(way, ':');
        double value = size ? atof(size + 1) : 3, begin = used();
        prctl(PR_SET_NAME, way);
        if (!strncmp(way, "threads", 7)) threads(value, ms / value);
        else if (!strncmp(way, "forks", 5)) forks(value, ms / value);
        else if (!strncmp(way, "pool", 4)) pool(ms / value);
        else timer(value, ms * value / 500);
        printf("%s %.0f\n", way, used() - begin);
    }
    return 0;
}
