/* watched [WRITES [READS]]: writes WRITES (5) times to the word at 0x20000000, 1, 2, 3 …, then reads it READS (3) times, and calls the
 * code at 0x20001000 once. A thread of its own writes 100 to the word at 0x20000008. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((void *)0x20000000)
#define CODE ((void *)0x20001000)

static void *other(void *unused) {
    (void)unused;
    *(volatile long *)0x20000008 = 100;
    return NULL;
}

int main(int argc, char **argv) {
    int writes = argc > 1 ? atoi(argv[1]) : 5, reads = argc > 2 ? atoi(argv[2]) : 3;
    volatile long *word = PAGE;
    volatile long sum = 0;
    pthread_t thread;
    static const unsigned char code[] = {0xc3}; /* ret on x86-64 */
    if (mmap(PAGE, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != PAGE)
        return 1;
    for (int n = 1; n <= writes; n++)
        *word = n;
    for (int n = 0; n < reads; n++)
        sum += *word;
    memcpy(CODE, code, sizeof code);
#ifdef __x86_64__
    ((void (*)(void))CODE)();
#endif
    pthread_create(&thread, NULL, other, NULL);
    pthread_join(thread, NULL);
    return 0;
}
