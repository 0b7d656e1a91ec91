/* For tests/kernel/test_memory_images.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>
static int copied(const char *path)
{
    int from = open(path, O_RDONLY), to = memfd_create("copy", MFD_CLOEXEC);
    while (sendfile(to, from, 0, 1 << 20) > 0)
        ;
    return to;
}
__attribute__((noinline)) void in_program(void (*call)(void)) { call(); __asm__ volatile(""); }
/* LIBRARY: executes a copy of itself in memory, which loads a copy of the library. */
int main(int argc, char **argv)
{
    char path[40];
    if (argc == 2)
        fexecve(copied("/proc/self/exe"), (char *[]){argv[0], argv[1], "again", 0}, (char *[]){0});
    snprintf(path, sizeof path, "/proc/self/fd/%d", copied(argv[1]));
    void *library = dlopen(path, RTLD_NOW);
    for (int i = 0; i < 6000; i++) in_program((void (*)(void))dlsym(library, "in_library"));
}
