/* contends [TIMES [MILLISECONDS]]: TIMES (5) times one thread holds a mutex for MILLISECONDS (20) while the other waits for it.
 * Prints: address of the mutex, nanoseconds that the other thread waited in all. The owner only lets go when the other has been
 * about to lock for that long, so each round waits. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t held, wanted, finished;
static int times = 5;
static long milliseconds = 20, waited;

long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

void contend(void) {
    long before = now();
    pthread_mutex_lock(&mutex);
    waited += now() - before;
    pthread_mutex_unlock(&mutex);
}

static void *wait_for_it(void *argument) {
    for (int round = 0; round < times; round++) {
        sem_wait(&held);
        sem_post(&wanted);
        contend();
        sem_post(&finished);
    }
    return argument;
}

int main(int argc, char **argv) {
    pthread_t other;
    times = argc > 1 ? atoi(argv[1]) : 5;
    milliseconds = argc > 2 ? atol(argv[2]) : 20;
    struct timespec length = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    sem_init(&held, 0, 0);
    sem_init(&wanted, 0, 0);
    sem_init(&finished, 0, 0);
    pthread_create(&other, NULL, wait_for_it, NULL);
    for (int round = 0; round < times; round++) {
        pthread_mutex_lock(&mutex);
        sem_post(&held);
        sem_wait(&wanted);
        nanosleep(&length, NULL);
        pthread_mutex_unlock(&mutex);
        sem_wait(&finished);
    }
    pthread_join(other, NULL);
    printf("%p %ld\n", (void *)&mutex, waited);
    return 0;
}
