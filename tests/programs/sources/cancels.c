/* For tests/kernel/test_returns.py. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int cleaned, ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void clean(void *unused) { cleaned++; pthread_mutex_unlock(&lock); }
__attribute__((noinline)) int waits(int file) { char byte; int got = read(file, &byte, 1); __asm__(""); return got; }
static void *run(void *unused) {
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(clean, 0);
    waits(ends[0]);
    pthread_cleanup_pop(1);
    return 0;
}
int main(void) {
    int cancelled = 0;
    pipe(ends);
    for (int i = 0; i < 1000; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, run, 0);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("%d %d %d\n", cancelled, cleaned, pthread_mutex_trylock(&lock));
    return 5;
}
