/* For tests/kernel/test_deep_stacks.py. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
/* deep DEPTH...: for each number a getsid under as many calls of deep. */
__attribute__((noinline)) int deep(int n) {
    int sum = n > 1 ? deep(n - 1) : (int)syscall(SYS_getsid, 0);
    __asm__ volatile("" ::: "memory");
    return sum + 1;
}
int main(int count, char **words) {
    for (int i = 1; i < count; i++)
        deep(atoi(words[i]));
    return 0;
}
