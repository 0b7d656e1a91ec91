/* waiter: for each SIGUSR1 calls served(N); ends on SIGTERM or after ten minutes. For tests of -p. */
#define _GNU_SOURCE
#include <signal.h>
#include <time.h>

int served(int n) {
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}

int main(void) {
    sigset_t set;
    struct timespec minutes = {600, 0};
    int n = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, 0);
    while (sigtimedwait(&set, 0, &minutes) == SIGUSR1)
        n = served(n);
    return 0;
}
