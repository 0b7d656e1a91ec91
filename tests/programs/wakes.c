/* wakes [TIMES]: one thread (named "waker") wakes the other (named "sleeper") TIMES (10) times through a pipe; each waits for the
 * other's answer. Prints the thread numbers of waker and sleeper. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int to[2], back[2], times = 10;
static pid_t sleeper;

static void *sleep_often(void *argument) {
    char byte;
    pthread_setname_np(pthread_self(), "sleeper");
    sleeper = gettid();
    for (int round = 0; round < times; round++)
        if (read(to[0], &byte, 1) != 1 || write(back[1], "x", 1) != 1)
            exit(2);
    return argument;
}

int main(int argc, char **argv) {
    pthread_t other;
    char byte;
    times = argc > 1 ? atoi(argv[1]) : 10;
    if (pipe(to) || pipe(back))
        return 2;
    pthread_setname_np(pthread_self(), "waker");
    pthread_create(&other, NULL, sleep_often, NULL);
    for (int round = 0; round < times; round++)
        if (write(to[1], "x", 1) != 1 || read(back[0], &byte, 1) != 1)
            return 2;
    pthread_join(other, NULL);
    printf("%d %d\n", gettid(), sleeper);
    return 0;
}
