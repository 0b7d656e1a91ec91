/* chains: calls getsid(N) with a frame pointer of its own making for each N, at addresses that are always the same
 * (x86-64); the stacks of these calls are chains of frames that are short, long, broken or without an end.  Each N
 * once in each of TIMES rounds (argument, 1), then prints the number of chains. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul
#define LOW 0x100000000ul
#define HIGH 0x200000000ul
#define ISLAND 0x300000000ul
/* Return addresses, which some chains have as frame pointers. The code of the program would not do: whether a page of it is there
 * is chance. */
#define BACK 0x500000000ul
#define TOP 0x7ffffffff000ul
#define MOST 64

static unsigned long starts[MOST];
static int number;

static void frame(unsigned long at, unsigned long next, unsigned long back) {
    unsigned long words[2] = {next, back};
    __builtin_memcpy((void *)at, words, sizeof words);
}

/* A chain of *count* frames from *at* on, *step* bytes apart, with *last* as the frame pointer of the last one. */
static void chain(unsigned long at, int count, long step, unsigned long last) {
    starts[number++] = at;
    for (int n = 0; n < count; n++, at += step)
        frame(at, n + 1 < count ? at + step : last, BACK + number * 0x1000 + n);
}

static void *map(unsigned long at, unsigned long size, int protection) {
    void *got = mmap((void *)at, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != (void *)at) {
        perror("mmap");
        exit(1);
    }
    return got;
}

static void make(void) {
    unsigned long end = LOW + 256 * PAGE;
    map(LOW, 256 * PAGE, PROT_READ | PROT_WRITE);
    map(HIGH, 512 * PAGE, PROT_READ | PROT_WRITE);
    /* A page that is there, one that was never touched, one that cannot be read, one that is there. */
    map(ISLAND, 2 * PAGE, PROT_READ | PROT_WRITE);
    map(ISLAND + 2 * PAGE, PAGE, PROT_NONE);
    map(ISLAND + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE);
    static const unsigned long ends[] = {0, 1, 0xfff, 0x1000, 1ul << 47, ~0xful, 0xffffffff81000000ul, TOP - 16,
                                         TOP - 8, ISLAND + 2 * PAGE, LOW + 1};
    for (unsigned n = 0; n < sizeof ends / sizeof *ends; n++)
        chain(LOW + PAGE * n, 5, 64, ends[n]);
    chain(LOW + 20 * PAGE, 2, 64, LOW + 20 * PAGE);              /* leads to its first (one that leads to itself ends) */
    chain(LOW + 21 * PAGE + 800, 9, -80, 0);                     /* downwards */
    chain(LOW + 22 * PAGE + 1, 12, 33, 0);                       /* not aligned */
    chain(LOW + 23 * PAGE + PAGE - 8, 6, 48, 0);                 /* the first across the end of a page */
    chain(LOW + 25 * PAGE + PAGE - 16, 6, 48, 0);                /* the first at the end of a page */
    chain(end - 16, 1, 0, 0);                                    /* at the end of the mapping */
    chain(end - 9 * 48, 9, 48, 0);                               /* near it */
    chain(end - 9 * 48 + 24, 9, 48, 0);
    chain(end - 5 * PAGE - 40, 6, PAGE, end - 16);               /* across it: the last frame is not there */
    starts[number++] = end - 8;                                  /* across it at once */
    starts[number++] = end;
    starts[number++] = 8;
    starts[number++] = 0;
    static const long steps[] = {16, 32, 200, 1008, 1024, 1032, 2016, 2032, 2040, 2048, 2056, 4080, 4096};
    for (unsigned n = 0; n < sizeof steps / sizeof *steps; n++)  /* longer than any stack */
        chain(HIGH + n * 160 * 16, 150, steps[n], 0);
    /* Between two places, each time outside of what was read before. */
    starts[number++] = LOW + 100 * PAGE;
    for (int n = 0; n < 20; n++) {
        frame(LOW + 100 * PAGE + n * 32, HIGH + 300 * PAGE + n * 32, BACK + 0x100000 + n);
        frame(HIGH + 300 * PAGE + n * 32, LOW + 100 * PAGE + (n + 1) * 32, BACK + 0x200000 + n);
    }
    chain(ISLAND + PAGE - 5 * 64, 5, 64, ISLAND + PAGE + 64);    /* to a page that was never touched */
    chain(ISLAND + 500, 4, 64, ISLAND + 2 * PAGE + 64);          /* to one that cannot be read */
    chain(ISLAND + 3 * PAGE, 4, 1000, ISLAND + PAGE - 5 * 64);   /* back over both */
    starts[number++] = ISLAND + 2 * PAGE - 8;
}

static void call(long argument, unsigned long chain) {
#ifdef __x86_64__
    register long result __asm__("rax") = SYS_getsid;
    __asm__ volatile("subq $128, %%rsp\n pushq %%rbp\n movq %2, %%rbp\n syscall\n popq %%rbp\n addq $128, %%rsp\n"
                     : "+r"(result)
                     : "D"(argument), "S"(chain)
                     : "rcx", "r11", "memory");
#else
    (void)chain;
    syscall(SYS_getsid, argument);
#endif
}

int main(int argc, char **argv) {
    make();
    for (int rounds = argc > 1 ? atoi(argv[1]) : 1; rounds > 0; rounds--)
        for (int n = 0; n < number; n++)
            call(1000000 + n, starts[n]);
    printf("%d\n", number);
    return 0;
}
