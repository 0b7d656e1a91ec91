/* faults: a signal's handler runs handled() in the middle of fault(), between two lines; then the program ends. */
#include <signal.h>
#include <unistd.h>

static volatile int before;

void handled(void) {
    __asm__ volatile("");
}

static void handler(int number) {
    (void)number;
    handled();
    _exit(0);
}

int fault(volatile int *place) {
    before = 1;
    *place = 2; /* here */
    return before + 1;
}

int main(void) {
    signal(SIGSEGV, handler);
    return fault((volatile int *)8);
}
