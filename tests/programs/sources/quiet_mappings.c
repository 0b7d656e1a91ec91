/* For tests/kernel/test_memory_images.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
__attribute__((noinline)) void quiet_leaf(int n) { __asm__ volatile("" : : "r"(n)); }
int main(int argc, char **argv)
{
    for (int i = 0; i < 20; i++) {
        quiet_leaf(i);
        char *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory = mremap(memory, 1 << 20, 1 << 22, MREMAP_MAYMOVE);
        mmap(memory, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        munmap(memory, 1 << 22);
        munmap((void *)4096, 1);
        if (i == 10) dlopen(argv[1], RTLD_NOW);
    }
    if (argc > 2) { dlclose(dlopen(argv[1], RTLD_NOW)); dlclose(dlopen(argv[1], RTLD_NOW)); quiet_leaf(1); }
    return 0;
}
