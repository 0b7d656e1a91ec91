/* family [DEPTH [WIDTH [wait]]]: each process calls born(generation); up to generation DEPTH (2) it then forks WIDTH (2) children,
 * one after the other, each of which runs a thread that calls in_thread(generation). With `wait` it starts on SIGUSR1 only. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int depth = 2, width = 2;

int born(int generation) {
    __asm__ volatile("" : "+r"(generation));
    return generation;
}

int in_thread(int generation) {
    __asm__ volatile("" : "+r"(generation));
    return generation;
}

static void *run(void *argument) {
    in_thread((int)(long)argument);
    return NULL;
}

static void live(int generation) {
    born(generation);
    for (int n = 0; generation < depth && n < width; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, run, (void *)(long)(generation + 1));
            pthread_join(thread, NULL);
            live(generation + 1);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
}

int main(int argc, char **argv) {
    sigset_t set;
    int got;
    if (argc > 1)
        depth = atoi(argv[1]);
    if (argc > 2)
        width = atoi(argv[2]);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    if (argc > 3 && (sigprocmask(SIG_BLOCK, &set, NULL) || sigwait(&set, &got)))
        return 1;
    live(0);
    return 0;
}
