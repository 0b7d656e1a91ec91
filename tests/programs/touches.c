/* touches [PAGES [CHILDREN]]: maps PAGES (100) pages of anonymous memory and writes into each once, in touch(). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void touch(volatile char *memory, long pages, long size) {
    for (long page = 0; page < pages; page++)
        memory[page * size] = 1;
}

int main(int argc, char **argv) {
    long pages = argc > 1 ? atol(argv[1]) : 100, size = sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, pages * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    madvise(memory, pages * size, MADV_NOHUGEPAGE);
    touch(memory, pages, size);
    printf("%ld\n", pages);
    return 0;
}
