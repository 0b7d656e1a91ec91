/* brood: forks two children, one of them from a thread, and one of these a grandchild; all then wait. For each SIGUSR1 to the
 * first process each of the four calls hatched(N), N being 0 to 3; ends on SIGTERM. For tests of --follow with -p. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static sigset_t set;
static pid_t children[2];

int hatched(int n) {
    __asm__ volatile("" : "+r"(n));
    return n;
}

/* Serves signals, which it passes on to *count* processes, one after the other: each tells by a byte when it is done. */
static void serve(int n, pid_t *below, int count, int up, int down) {
    int got;
    char byte = 0;
    while (!sigwait(&set, &got) && got == SIGUSR1) {
        hatched(n);
        for (int i = 0; i < count; i++)
            if (kill(below[i], SIGUSR1) || read(down, &byte, 1) != 1)
                _exit(1);
        if (up >= 0 && write(up, &byte, 1) != 1)
            _exit(1);
    }
}

static pid_t birth(int n, int up, int has_child) {
    int down[2];
    pid_t parent = getpid(), child = fork();
    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    if (pipe(down))
        _exit(1);
    pid_t grandchild = has_child ? birth(3, down[1], 0) : 0;
    serve(n, &grandchild, has_child, up, down[0]);
    _exit(0);
}

static int up;

static void *in_thread(void *unused) {
    (void)unused;
    children[1] = birth(2, up, 1);
    pause();
    return NULL;
}

int main(void) {
    int ends[2];
    pthread_t thread;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, 0);
    if (pipe(ends))
        return 1;
    up = ends[1];
    children[0] = birth(1, up, 0);
    pthread_create(&thread, NULL, in_thread, NULL);
    while (!*(volatile pid_t *)&children[1])
        usleep(1000);
    puts("ready");
    fflush(stdout);
    serve(0, children, 2, -1, ends[0]);
    return 0;
}
