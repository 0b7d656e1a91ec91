/* holds: a thread works for 60 ms of a processor with a mutex, and for 60 ms without, six times; another one wants the
 * mutex all the time. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;
static volatile int over;

static long used(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

void work(int ms) {
    for (long end = used() + ms * 1000000L; used() < end;)
        for (int step = 0; step < 10000; step++)
            sink += step;
}

void rebuild_index(void) {
    work(60);
}

void encode(void) {
    work(60);
}

static void *keeper(void *argument) {
    for (int round = 0; round < 6; round++) {
        pthread_mutex_lock(&mutex);
        rebuild_index();
        pthread_mutex_unlock(&mutex);
        encode();
    }
    over = 1;
    return argument;
}

static void *wanter(void *argument) {
    while (!over) {
        usleep(5000);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    return argument;
}

int main(void) {
    pthread_t first, second;
    pthread_create(&first, NULL, keeper, NULL);
    pthread_create(&second, NULL, wanter, NULL);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    return 0;
}
