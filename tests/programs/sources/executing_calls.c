/* Executes itself so many times (argv[1]) in calls four deep: in its first thread, or with argv[2] in another one while
 * the first one waits in a call. Each program makes two calls with three inside at its start, the last one at its end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char **arguments;
static volatile int left, counted;

__attribute__((noinline)) int inner(int n) { return counted + n; }

__attribute__((noinline)) int outer(int n) {
    for (int i = 0; i < 3; i++) counted += inner(n);
    return counted;
}

__attribute__((noinline)) int dive(int n) {
    if (n) return dive(n - 1) + 1;
    if (left) {
        char number[12];
        sprintf(number, "%d", left - 1);
        execl("/proc/self/exe", arguments[0], number, arguments[2], (char *)0);
    }
    return 0;
}

static void *job(void *_) { return (void *)(long)dive(3); }

__attribute__((noinline)) int waits(pthread_t thread) { return pthread_join(thread, 0) + 1; }

int main(int count, char **words) {
    arguments = words;
    left = atoi(words[1]);
    outer(0);
    outer(0);
    if (count > 2) {
        pthread_t thread;
        pthread_create(&thread, 0, job, 0);
        waits(thread);
    } else
        dive(3);
    outer(0);
    return 0;
}
