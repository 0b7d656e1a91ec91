/* For tests/kernel/test_memory_images.py. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static volatile long sum;
__attribute__((noinline)) void NAME_leaf(int n) { sum += n; }
__attribute__((noinline)) void NAME_outer(int n) { NAME_leaf(n); sum += n; }
__attribute__((noinline)) void NAME_hot(double end) { while (now() < end) for (int i = 0; i < 100; i++) sum += i; }
__attribute__((noinline)) void NAME_work(double seconds) { NAME_hot(now() + seconds); sum++; }
#ifdef LIBRARY
void entry(double seconds) { NAME_outer(1); NAME_work(seconds); sum++; }
#else
/* NEXT COUNT SECONDS: works, then executes the other program, COUNT times in all. */
int main(int argc, char **argv)
{
    char count[20];
    NAME_outer(1);
    NAME_work(atof(argv[3]));
    snprintf(count, sizeof count, "%d", atoi(argv[2]) - 1);
    if (atoi(argv[2]) > 1) execl(argv[1], argv[1], argv[0], count, argv[3], (char *)0);
    return 0;
}
#endif
