/* For tests/kernel/test_compiled_code.py. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};
static FILE *file;
__attribute__((noinline)) void leaf(int phase) { syscall(SYS_getsid, 1000000 + phase); __asm__ volatile(""); }
/* Names the code, as compilers at run time do: by a record with a time, or by a line. */
static void name(int dump, long start, int phase)
{
    char text[12];
    struct timespec now;
    long length = sizeof code + phase % 2, rest[5] = {0, start, start, length, phase};
    snprintf(text, sizeof text, "phase %d", phase);
    if (dump) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        int load[2] = {0, 16 + 40 + 8 + length};
        long moment = now.tv_sec * 1000000000L + now.tv_nsec;
        fwrite(load, sizeof load, 1, file);
        fwrite(&moment, sizeof moment, 1, file);
        fwrite(rest, sizeof rest, 1, file);
        fwrite(text, 8, 1, file);
        fwrite((void *)start, length, 1, file);
    } else {
        fprintf(file, "%lx %lx %s\n", start, length, text);
    }
    fflush(file);
}
int main(int argc, char **argv)
{
    int dump = !strcmp(argv[1], "dump"), head[10] = {0x4A695444, 1, 40};
    char path[100];
    snprintf(path, sizeof path, dump ? "/tmp/jit-%d.dump" : "/tmp/perf-%d.map", getpid());
    file = fopen(path, "w+");
    if (dump) {
        fwrite(head, sizeof head, 1, file);
        fflush(file);
        mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0);
    }
    unsigned char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int phase = 0; phase < atoi(argv[2]); phase++) {
        /* Two layouts in turn: the first and the third piece of code call from the same address. */
        memory[0] = 0x90;
        memcpy(memory + phase % 2, code, sizeof code);
        name(dump, (long)memory, phase);
        for (int i = 0; i < atoi(argv[3]); i++) ((void (*)(int, void (*)(int)))memory)(phase, leaf);
    }
    fclose(file);
    return 0;
}
