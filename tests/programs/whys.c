/* whys MILLISECONDS PART...: threads that spend their time in known ways, and their own account of it. Each part is a thread, or some:
 *   lock    two threads that take turns with a mutex, which each holds while it sleeps: one waits for the other
 *   pi      the same with a mutex of priority inheritance
 *   sleep   a thread that sleeps
 *   spin    a thread that computes
 *   sync    a thread that writes to whys.data and calls fsync
 *   pipe    a thread that reads what another one writes to a pipe now and then
 *   tcp     a thread that asks a server on this machine, a child, which takes its time
 *   fault   a thread that reads whys.map through memory, after it has dropped its pages
 *   pool    three threads that wait for work which never comes
 *   child   a thread that waits for a child process that sleeps
 * Prints for each: its name, which its threads have, too, and nanoseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long length;
static long start;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void nap(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) && errno == EINTR) {
    }
}

static void name(const char *part) { pthread_setname_np(pthread_self(), part); }

static int over(void) { return now() - start > length; }

static void say(const char *name, long ns) {
    char line[64];
    int size = snprintf(line, sizeof line, "%s %ld\n", name, ns);
    if (write(1, line, size) != size) {
        exit(1);
    }
}

static pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static long waited[2], slept[2];

__attribute__((noinline)) void take_turns(int which) {
    long before = now();
    pthread_mutex_lock(&mutexes[which]);
    long got = now();
    __atomic_add_fetch(&waited[which], got - before, __ATOMIC_SEQ_CST);
    nap(10);
    __atomic_add_fetch(&slept[which], now() - got, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&mutexes[which]);
    sched_yield();
}

static void *turns(void *argument) {
    name(argument ? "pi" : "lock");
    while (!over()) {
        take_turns((int)(long)argument);
    }
    return NULL;
}

__attribute__((noinline)) void sleep_alone(void) {
    name("sleep");
    long before = now();
    while (!over()) {
        nap(20);
    }
    say("sleep", now() - before);
}

static volatile unsigned long sink;
__attribute__((noinline)) void compute(void) {
    name("spin");
    while (!over()) {
        for (int i = 0; i < 100000; i++) {
            sink += i;
        }
    }
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    say("spin", time.tv_sec * 1000000000L + time.tv_nsec);
}

__attribute__((noinline)) void save(void) {
    name("sync");
    static char block[65536];
    int file = open("whys.data", O_CREAT | O_TRUNC | O_RDWR, 0600);
    long syncing = 0;
    while (!over()) {
        if (pwrite(file, block, sizeof block, 0) != sizeof block) {
            exit(1);
        }
        long before = now();
        fsync(file);
        syncing += now() - before;
    }
    close(file);
    say("sync", syncing);
}

enum { PAGES = 512, PAGE = 4096 };
__attribute__((noinline)) void touch(void) {
    name("fault");
    int file = open("whys.map", O_CREAT | O_TRUNC | O_RDWR, 0600);
    static char page[PAGE];
    for (int i = 0; i < PAGES; i++) {
        if (write(file, page, PAGE) != PAGE) {
            exit(1);
        }
    }
    fsync(file);
    long reading = 0;
    while (!over()) {
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        volatile char *memory = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
        madvise((void *)memory, PAGES * PAGE, MADV_RANDOM);
        long before = now();
        for (int i = 0; i < PAGES; i++) {
            sink += memory[i * PAGE];
        }
        reading += now() - before;
        munmap((void *)memory, PAGES * PAGE);
    }
    close(file);
    say("fault", reading);
}

static int pipes[2];
__attribute__((noinline)) void produce(void) {
    name("producer");
    while (!over()) {
        nap(15);
        if (write(pipes[1], "x", 1) != 1) {
            exit(1);
        }
    }
    close(pipes[1]);
}

__attribute__((noinline)) void consume(void) {
    name("pipe");
    char byte;
    long reading = 0, before = now();
    while (read(pipes[0], &byte, 1) == 1) {
        reading += now() - before;
        before = now();
    }
    say("pipe", reading + now() - before);
}

static int server = -1;
static struct sockaddr_in address;
static void serve(void) {
    int client = accept(server, NULL, NULL);
    char byte;
    while (read(client, &byte, 1) == 1) {
        nap(25);
        if (write(client, &byte, 1) != 1) {
            break;
        }
    }
    _exit(0);
}

__attribute__((noinline)) void ask(void) {
    name("tcp");
    int client = socket(AF_INET, SOCK_STREAM, 0);
    char byte = 'x';
    long waiting = 0;
    if (connect(client, (struct sockaddr *)&address, sizeof address)) {
        exit(1);
    }
    while (!over()) {
        if (write(client, &byte, 1) != 1) {
            exit(1);
        }
        long before = now();
        if (read(client, &byte, 1) != 1) {
            exit(1);
        }
        waiting += now() - before;
    }
    close(client);
    say("tcp", waiting);
}

static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static int ended;
static void *wait_for_work(void *argument) {
    name("pool");
    pthread_mutex_lock(&queue);
    while (!ended) {
        pthread_cond_wait(&work, &queue);
    }
    pthread_mutex_unlock(&queue);
    return argument;
}

static pid_t child;
__attribute__((noinline)) void wait_for_child(void) {
    name("child");
    long before = now();
    waitpid(child, NULL, 0);
    say("child", now() - before);
}

static void *run(void *argument) {
    ((void (*)(void))argument)();
    return NULL;
}

static pthread_t threads[64];
static int count;
static void begin(void *(*function)(void *), void *argument) {
    if (pthread_create(&threads[count++], NULL, function, argument)) {
        exit(1);
    }
}

int main(int argc, char **argv) {
    length = argc > 1 ? atol(argv[1]) * 1000000 : 500000000;
    int pool = 64, locks = 0, inherits = 0;
    start = now();
    for (int i = 2; i < argc; i++) {
        // Children first: they have one thread.
        if (!strcmp(argv[i], "tcp")) {
            socklen_t size = sizeof address;
            server = socket(AF_INET, SOCK_STREAM, 0);
            address.sin_family = AF_INET;
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            if (bind(server, (struct sockaddr *)&address, size) || listen(server, 1) ||
                getsockname(server, (struct sockaddr *)&address, &size)) {
                return 1;
            }
            if (!fork()) {
                serve();
            }
        } else if (!strcmp(argv[i], "child") && !(child = fork())) {
            nap(length / 1000000);
            _exit(0);
        }
    }
    for (int i = 2; i < argc; i++) {
        const char *part = argv[i];
        if (!strcmp(part, "lock")) {
            locks = 1;
            begin(turns, (void *)0);
            begin(turns, (void *)0);
        } else if (!strcmp(part, "pi")) {
            pthread_mutexattr_t attributes;
            pthread_mutexattr_init(&attributes);
            pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
            pthread_mutex_init(&mutexes[1], &attributes);
            inherits = 1;
            begin(turns, (void *)1);
            begin(turns, (void *)1);
        } else if (!strcmp(part, "sleep")) {
            begin(run, (void *)sleep_alone);
        } else if (!strcmp(part, "spin")) {
            begin(run, (void *)compute);
        } else if (!strcmp(part, "sync")) {
            begin(run, (void *)save);
        } else if (!strcmp(part, "pipe")) {
            if (pipe(pipes)) {
                return 1;
            }
            begin(run, (void *)produce);
            begin(run, (void *)consume);
        } else if (!strcmp(part, "fault")) {
            begin(run, (void *)touch);
        } else if (!strcmp(part, "tcp")) {
            begin(run, (void *)ask);
        } else if (!strcmp(part, "pool")) {
            pool = count;
            for (int j = 0; j < 3; j++) {
                begin(wait_for_work, NULL);
            }
        } else if (!strcmp(part, "child")) {
            begin(run, (void *)wait_for_child);
        } else {
            return 2;
        }
    }
    // The pool last: its threads wait until then.
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < count; i++) {
            if (last == (i >= pool && i < pool + 3)) {
                pthread_join(threads[i], NULL);
            }
        }
        pthread_mutex_lock(&queue);
        ended = 1;
        pthread_cond_broadcast(&work);
        pthread_mutex_unlock(&queue);
    }
    if (locks) {
        say("lock", waited[0]);
        say("held", slept[0]);
    }
    if (inherits) {
        say("pi", waited[1]);
    }
    if (server >= 0) {
        close(server);
        while (wait(NULL) > 0) {
        }
    }
    return 0;
}
