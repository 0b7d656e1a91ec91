/* loop RESULT KIND CHUNKS CALLS [PAUSE [DEPTH [linger]]]: CHUNKS times CALLS calls of what KIND names, on one processor, PAUSE microseconds of
 * sleep between two chunks, at DEPTH calls below main. Writes the processor time of each chunk in nanoseconds to RESULT, a number a line.
 * With "linger" it then calls memfd_create(NULL), for the tracer to end by, and waits, so that its addresses have names until the end.
 * The least of short chunks is what the loop costs where nothing else disturbs it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../../tests/programs/probes.h"

#define BAD_FLAGS 0x80000000u /* refused before the name is looked at */

static unsigned long number; /* of the call, from 0 */
static int null;             /* /dev/null */
static volatile unsigned long sink;

__attribute__((noinline)) unsigned long traced(unsigned long value) {
    __asm__ volatile("" : "+r"(value));
    return value;
}

static void call(void) { syscall(SYS_getsid, 0); }
static void numbered(void) { syscall(SYS_getsid, (int)number); }
static void named(void) { syscall(SYS_memfd_create, "a-name-of-20-letters", BAD_FLAGS); }
static void names(void) {
    char text[32] = "name-0000000";
    for (unsigned long rest = number, at = 11; rest; rest /= 10)
        text[at--] = '0' + rest % 10;
    syscall(SYS_memfd_create, text, BAD_FLAGS);
}
/* Addresses all over the code of the largest file that is mapped, as if they were names. */
static char *code;
static unsigned long code_size, all_calls;
static void addresses(void) { syscall(SYS_memfd_create, code + code_size / all_calls * number, BAD_FLAGS); }
static int largest(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size;
    for (int n = 0; n < info->dlpi_phnum; n++)
        if (info->dlpi_phdr[n].p_type == PT_LOAD && (info->dlpi_phdr[n].p_flags & PF_X) && info->dlpi_phdr[n].p_memsz > code_size) {
            code = (char *)info->dlpi_addr + info->dlpi_phdr[n].p_vaddr;
            code_size = info->dlpi_phdr[n].p_memsz;
        }
    return unused != NULL;
}
static void function(void) { sink = traced(number); }
static void marker(void) {
    unsigned long value = number; /* in a register: libbpf, by which bpftrace attaches, knows no addresses beside %rip */
    __asm__ volatile("" : "+r"(value));
    PROBE1("bench", "mark", value);
}
static void write_null(void) { sink = write(null, "x", 1); }
static void yields(void) { sched_yield(); }
static void opens(void) { close(open("/proc/self/stat", O_RDONLY)); }
static void spin(void) {
    for (int n = 0; n < 1000; n++)
        __asm__ volatile("" : : "r"(n));
}

/* A different user stack for each number: its bits choose which of two functions calls on. */
__attribute__((noinline)) static int branch(unsigned long bits, int level);
__attribute__((noinline)) static int left(unsigned long bits, int level) { return branch(bits, level) + 1; }
__attribute__((noinline)) static int right(unsigned long bits, int level) { return branch(bits, level) + 2; }
static int branch(unsigned long bits, int level) {
    if (!level)
        return (int)syscall(SYS_getsid, 0);
    return (bits & 1 ? left(bits >> 1, level - 1) : right(bits >> 1, level - 1)) + 3;
}
static void stacks(void) { sink = branch(number, 17); }

static const struct {
    const char *name;
    void (*call)(void);
} kinds[] = {{"call", call},         {"numbered", numbered}, {"named", named}, {"names", names},   {"function", function}, {"marker", marker},
             {"write", write_null}, {"yield", yields},      {"spin", spin},   {"stacks", stacks}, {"open", opens}, {"addresses", addresses}};

static long chunks, calls, pause_us;
static long *took;

static long processor_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

__attribute__((noinline)) static int run(void (*what)(void), int depth) {
    if (depth > 0)
        return run(what, depth - 1) + 1;
    for (long chunk = 0; chunk < chunks; chunk++) {
        long begin = processor_time();
        for (long n = 0; n < calls; n++, number++)
            what();
        took[chunk] = processor_time() - begin;
        if (pause_us)
            usleep(pause_us);
    }
    return 0;
}

static void stay_on_one_processor(void) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
        if (CPU_ISSET(cpu, &allowed)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

int main(int argc, char **argv) {
    void (*what)(void) = NULL;
    FILE *result;
    if (argc < 5)
        return 2;
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
        if (!strcmp(kinds[n].name, argv[2]))
            what = kinds[n].call;
    chunks = atol(argv[3]);
    calls = atol(argv[4]);
    pause_us = argc > 5 ? atol(argv[5]) : 0;
    took = calloc(chunks, sizeof *took);
    null = open("/dev/null", O_WRONLY);
    if (!what || !took)
        return 2;
    all_calls = chunks * calls;
    dl_iterate_phdr(largest, NULL);
    stay_on_one_processor();
    run(what, argc > 6 ? atoi(argv[6]) : 0);
    result = fopen(argv[1], "w");
    if (!result)
        return 1;
    for (long n = 0; n < chunks; n++)
        fprintf(result, "%ld\n", took[n]);
    if (fclose(result))
        return 1;
    if (argc > 7) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        syscall(SYS_memfd_create, NULL, BAD_FLAGS);
        sleep(120);
    }
    return 0;
}
