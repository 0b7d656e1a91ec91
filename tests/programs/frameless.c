/* Known chains of calls in code without frame pointers; the last function of each, leaf(), makes one getppid(2).
 *
 *   frameless chain         main -> outer -> visit (libframeless.so) -> inner -> leaf
 *   frameless deep N        main -> deep -> recurse x (N + 1) -> leaf
 *   frameless signal        main -> interrupted -> raise ... -> handler -> leaf
 *   frameless align         main -> aligned (which aligns its stack) -> leaf
 *   frameless fork          as chain, at once in a child process
 *   frameless later         as chain, again and again for half a minute, while a tracer gets to know the mappings
 *   frameless load LIBRARY  main -> load -> visit (of the library, opened at run time) -> inner -> leaf, again and again
 *   frameless spin MS       main -> outer -> visit -> busy, which keeps a processor busy
 *   frameless wait          as chain, each time that a line can be read
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 600 };

int visit(int (*function)(int), int value);

static volatile int sink;
static long limit;

/* The system call lies in this very function: a call through the C library would add its frame. */
int leaf(int value)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(110L) : "rcx", "r11", "memory");
    sink += (int)result;
    return value + 1;
}

int inner(int value)
{
    int result = leaf(value);
    return result + sink;
}

int outer(int value)
{
    volatile int numbers[50];
    numbers[value % 50] = visit(inner, value);
    return numbers[value % 50];
}

int recurse(int depth)
{
    int result = depth ? recurse(depth - 1) : leaf(depth);
    return result + sink;
}

int deep(int depth)
{
    return recurse(depth) + sink;
}

static void handler(int number)
{
    leaf(number);
    sink++;
}

int interrupted(int value)
{
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    return value + sink;
}

int aligned(int count)
{
    alignas(128) volatile char wide[128];
    volatile char *more = __builtin_alloca(count);
    more[0] = wide[0] = (char)count;
    return leaf(count) + more[0] + wide[0];
}

int load(const char *library)
{
    void *opened = dlopen(library, RTLD_NOW);
    int (*found)(int (*)(int), int) = opened ? dlsym(opened, "visit") : NULL;
    if (!found)
        return 1;
    for (int n = 0; n < TIMES; n++) {
        usleep(50000);
        sink += found(inner, 1);
    }
    return sink;
}

int busy(int value)
{
    struct timespec now;
    do {
        for (int step = 0; step < 100000; step++)
            sink += step;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < limit);
    return value + sink;
}

static int spin(long milliseconds)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    limit = now.tv_sec * 1000 + now.tv_nsec / 1000000 + milliseconds;
    return visit(busy, 1) + sink;
}

static int in_child(void)
{
    pid_t child = fork();
    if (!child) {
        outer(1);
        _exit(0);
    }
    return waitpid(child, NULL, 0) == child ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "chain";
    char line[16];
    if (!strcmp(mode, "deep"))
        deep(argc > 2 ? atoi(argv[2]) : 10);
    else if (!strcmp(mode, "signal"))
        interrupted(1);
    else if (!strcmp(mode, "align"))
        aligned(24);
    else if (!strcmp(mode, "fork"))
        return in_child();
    else if (!strcmp(mode, "later"))
        for (int n = 0; n < TIMES; n++) {
            usleep(50000);
            outer(1);
        }
    else if (!strcmp(mode, "load"))
        load(argv[2]);
    else if (!strcmp(mode, "spin"))
        spin(argc > 2 ? atoi(argv[2]) : 200);
    else if (!strcmp(mode, "wait"))
        while (fgets(line, sizeof line, stdin))
            outer(1);
    else
        outer(1);
    return sink & 0;
}
