/* Calls that do not return: two threads that wait in a recursion, one that longjmp() has brought back and that waits
 * further out, one that has ended in its call, and calls that return all the time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) int wait_inside(int depth) {
    if (depth) return wait_inside(depth - 1) + 1;
    for (;;) pause();
}

static jmp_buf back;
__attribute__((noinline)) int leave(int value) {
    if (value) longjmp(back, value);
    return 1;
}

__attribute__((noinline)) int between(int value) {
    volatile char room[256];
    room[value] = leave(value);
    return room[value];
}

__attribute__((noinline)) int end_inside(int value) {
    if (value) pthread_exit(0);
    return 1;
}

static volatile int counted;
__attribute__((noinline)) int hurry(int value) { return counted + value; }

static void *waits(void *_) { return (void *)(long)wait_inside(2); }

static void *leaves(void *_) {
    if (!setjmp(back)) between(7);
    for (;;) pause();
}

static void *ends(void *_) { return (void *)(long)end_inside(1); }

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, ends, 0);
    pthread_join(thread, 0);
    pthread_create(&thread, 0, waits, 0);
    pthread_create(&thread, 0, waits, 0);
    pthread_create(&thread, 0, leaves, 0);
    for (;; counted = hurry(1)) usleep(1000);
}
