/* forks [CHILDREN]: CHILDREN children (3), one after the other; child N calls in_child(N) and ends with status N. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int in_child(int n) {
    __asm__ volatile("" : "+r"(n));
    return n;
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 3;
    for (int n = 0; n < children; n++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(in_child(n));
        waitpid(pid, NULL, 0);
    }
    return 0;
}
