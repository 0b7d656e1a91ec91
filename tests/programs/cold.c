/* cold: passes texts that are not in memory to a function, a USDT probe and a system call.
 *
 * The texts are in a file that is mapped and whose pages are dropped from the page cache before each use (the file is
 * made in the working directory and removed). take(number, text), sample:take(number, number, text, 0) and openat(text, number):
 *   1 a page that was never touched    2 across two such pages    3 the first page touched, the second not
 *   4 a page without permission        5 no end before a page that is not mapped       6 an address in no mapping
 *   7 null                             8 in memory                9 100 characters on an untouched page
 * Between 1 and 9, fields(pointer) is given a pointer to a structure { const char *text; long number; } on an untouched
 * page.
 * cold exec PATH: executes PATH, whose text is not in memory. cold open PATH: opens it.
 * cold held: prints the address of a text that is not in memory, and waits for a character.
 * cold stuck: reads a character, then passes a page that never arrives. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "probes.h"

enum { PAGE = 4096, PAGES = 3 };

struct fields {
    const char *text;
    long number;
};

void take(int number, const char *text) {
    (void)text;
    PROBE4("sample", "take", number, number, text, 0);
    /* No file is opened: the path is not there, or cannot be read. */
    syscall(SYS_openat, AT_FDCWD, text, O_RDONLY | O_CLOEXEC);
}

int fields(const void *pointer) {
    return pointer != NULL;
}

/* A fresh mapping of a file with bytes at a place, which are not in memory. */
static char *mapped(const void *bytes, size_t size, size_t place) {
    char name[] = "cold-XXXXXX", *image = calloc(PAGES, PAGE);
    int file = mkstemp(name);
    unlink(name);
    memcpy(image + place, bytes, size);
    if (file < 0 || write(file, image, PAGES * PAGE) != PAGES * PAGE || fsync(file))
        exit(2);
    free(image);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    char *found = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    madvise(found, PAGES * PAGE, MADV_RANDOM);
    close(file);
    return found + place;
}

static char *cold(const char *text, size_t place) {
    return mapped(text, strlen(text) + 1, place);
}

/* A page that never arrives. */
static char *stuck(void) {
    int file = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {
        .range = {(unsigned long)page, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (file < 0 || ioctl(file, UFFDIO_API, &api) || ioctl(file, UFFDIO_REGISTER, &range))
        exit(3);
    getchar();
    return page;
}

int main(int argc, char **argv) {
    char hundred[101];
    if (argc > 2) {
        char *path = cold(argv[2], 70);
        if (strcmp(argv[1], "exec") == 0)
            execl(path, path, NULL);
        else
            open(path, O_RDONLY);
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "held") == 0) {
        printf("%p\n", (void *)cold("/cold/held", PAGE - 6));
        fflush(stdout);
        return getchar() == EOF;
    }
    if (argc > 1) {
        take(10, stuck());
        return 0;
    }
    memset(hundred, 'x', 100);
    hundred[100] = 0;
    take(1, cold("/cold/untouched", 100));
    take(2, cold("/cold/across two pages", PAGE - 6));
    char *third = cold("/cold/first page touched", PAGE - 6);
    *(volatile char *)third;
    take(3, third);
    char *forbidden = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    take(4, forbidden);
    char *endless = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(endless, 'x', PAGE);
    munmap(endless + PAGE, PAGE);
    take(5, endless + PAGE - 10);
    take(6, (const char *)(uintptr_t)16);
    take(7, NULL);
    take(8, "/cold/resident");
    struct fields value = {cold("/cold/pointed to", 200), 42};
    fields(mapped(&value, sizeof value, PAGE - 8));
    take(9, cold(hundred, 50));
    return 0;
}
