/* For tests/kernel/test_chosen_unwinding.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret: as compilers at run time make it. */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* Before push %rbp and after pop %rbp a function's frame is not there: mov $124, %eax; syscall (getsid); push %rbp;
   mov %rsp, %rbp; the same; pop %rbp; the same; ret. */
static const unsigned char bare[] = {0xb8, 124, 0, 0, 0, 0x0f, 5, 0x55, 0x48, 0x89, 0xe5, 0xb8, 124, 0, 0, 0, 0x0f, 5,
                                     0x5d, 0xb8, 124, 0, 0, 0, 0x0f, 5, 0xc3};
static void (*generated)(void (*)(void));
static long asked = 1000000;
static void (*edges)(long);
__attribute__((noinline)) void edge(void) { edges(asked); __asm__ volatile(""); }
__attribute__((noinline)) void leaf(void) { syscall(SYS_getsid, asked); __asm__ volatile(""); }
__attribute__((noinline)) int compare(const void *a, const void *b)
{
    volatile int room[30];
    room[*(int *)a % 30] = 1;
    generated(leaf);
    return *(int *)a - *(int *)b + room[*(int *)a % 30] - 1;
}
__attribute__((noinline)) void sorts(int n)
{
    int all[2] = {n % 7, 3};
    qsort(all, 2, 4, compare);
    __asm__ volatile("");
}
/* As compilers at run time name their code: a line of a map, or a record of a file whose first page is mapped. */
static void names(const char *way)
{
    char path[100];
    snprintf(path, sizeof path, strcmp(way, "map") ? "/tmp/jit-%d.dump" : "/tmp/perf-%d.map", getpid());
    FILE *file = fopen(path, "w+");
    long start = (long)generated, length = sizeof code;
    if (!strcmp(way, "map")) {
        fprintf(file, "%lx %lx made by map\n", start, length);
    } else {
        int head[10] = {0x4A695444, 1, 40}, load[4] = {0, 16 + 40 + 13 + sizeof code};
        long rest[5] = {0, start, start, length, 1};
        fwrite(head, sizeof head, 1, file);
        fwrite(load, sizeof load, 1, file);
        fwrite(rest, sizeof rest, 1, file);
        fwrite("made by dump", 13, 1, file);
        fwrite(code, sizeof code, 1, file);
        mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0);
    }
    fclose(file);
}
int main(int argc, char **argv)
{
    void *memory = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory, code, sizeof code);
    generated = (void (*)(void (*)(void)))memory;
    memcpy(memory + 64, bare, sizeof bare);
    edges = (void (*)(long))(memory + 64);
    int at_edges = !strcmp(argv[2], "edges");
    if (strcmp(argv[2], "plain") && !at_edges) names(argv[2]);
    sorts(0);
    /* The tables of what was just met are known when this stack is whole, which the test sees. */
    for (asked++; access(argv[3], F_OK); usleep(1000)) sorts(0);
    asked--;
    for (int i = 1; i < atoi(argv[1]); i++) {
        if (at_edges) edge();
        else sorts(i);
    }
    return 0;
}
