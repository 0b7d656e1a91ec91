/* Ends so many processes (argv[1]) and as many threads in calls six deep: by exit(), SIGKILL and pthread_exit(). Calls
 * that return are made after a while. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum how { RETURN, EXIT, KILLED, THREAD };

__attribute__((noinline)) int within(int n, enum how how) {
    if (n) return within(n - 1, how) + 1;
    if (how == EXIT) exit(0);
    if (how == KILLED) kill(getpid(), SIGKILL);
    if (how == THREAD) pthread_exit(0);
    return 0;
}

static void *job(void *_) { return (void *)(long)within(5, THREAD); }

int main(int count, char **words) {
    for (int i = 0; i < atoi(words[1]); i++) {
        pid_t child = fork();
        if (!child) within(5, i % 2 ? EXIT : KILLED);
        waitpid(child, 0, 0);
        pthread_t thread;
        pthread_create(&thread, 0, job, 0);
        pthread_join(thread, 0);
    }
    sleep(5); /* pytrace looks for calls of threads that have ended each second */
    within(2, RETURN);
    return 0;
}
