/* For tests/kernel/test_memory_images.py. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) static void ask(void) { usleep(5000); syscall(SYS_getsid, 0); __asm__ volatile(""); }
__attribute__((noinline)) void in_program(void) { ask(); __asm__ volatile(""); }
/* Moves its code to anonymous memory at the same addresses, as programs do that want it in huge pages. */
int main(void)
{
    char line[500], rights[5];
    uintptr_t start, end, first = 0, size = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 && start <= (uintptr_t)main && (uintptr_t)main < end)
            first = start, size = end - start;
    char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, (char *)first, size);
    mprotect(copy, size, PROT_READ | PROT_EXEC);
    mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, first);
    for (int i = 0; i < 6000; i++) in_program();
}
