/* accounts [THREADS [STEPS [SEED]]]: THREADS (4) threads allocate, change, free, map, move and unmap in STEPS (2000) random steps each, in
 * all ways of the C library, and keep an account: what they hold from block() and from range(). Blocks are also freed by other threads.
 * At the end all of them unmap every other page of one mapping, at a time.
 * Prints the account: allocations and their bytes, mapped ranges and their bytes, the bytes that the allocator has mapped. Then waits
 * for the end of standard input. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 64
#define RANGES 64
#define PAGE 4096ul
#define LARGE (128 << 10)

struct block {
    void *memory;
    size_t size;
};

struct range {
    char *begin;
    size_t pages;
};

struct worker {
    pthread_t thread;
    unsigned long random;
    struct block blocks[BLOCKS];
    struct range ranges[RANGES];
};

static struct worker *workers;
static int threads, steps;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block shared[BLOCKS]; /* taken and left by all threads */
static pthread_barrier_t together;
static char *common; /* COMMON pages for each thread */
#define COMMON 64

static unsigned long below(struct worker *self, unsigned long limit) {
    self->random = self->random * 6364136223846793005ul + 1442695040888963407ul;
    return (self->random >> 33) % limit;
}

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(2);
    }
}

/* A new block, or one that has grown, shrunk or stayed because that failed. */
void block(struct worker *self, struct block *item) {
    size_t size = below(self, 4) ? 1 + below(self, 3000) : 1 + below(self, 8) * LARGE + below(self, 100000);
    volatile size_t too_much = PTRDIFF_MAX;
    void *memory = NULL;
    if (item->memory) {
        switch (below(self, 5)) {
        case 0:
            check(realloc(item->memory, too_much) == NULL, "realloc of too much");
            return;
        case 1:
            free(item->memory);
            break;
        case 2:
            check((memory = reallocarray(item->memory, size, 1)) != NULL, "reallocarray");
            *item = (struct block){memory, size};
            return;
        case 3:
            check(realloc(item->memory, 0) == NULL, "realloc to nothing");
            break;
        default:
            check((memory = realloc(item->memory, size)) != NULL, "realloc");
            *item = (struct block){memory, size};
            return;
        }
        *item = (struct block){NULL, 0};
        return;
    }
    switch (below(self, 10)) {
    case 0:
        memory = calloc(size, 1);
        break;
    case 1:
        memory = realloc(NULL, size);
        break;
    case 2:
        memory = aligned_alloc(64, size = (size + 63) & ~63ul);
        break;
    case 3:
        memory = memalign(256, size);
        break;
    case 4:
        memory = valloc(size);
        break;
    case 5:
        memory = pvalloc(size);
        break;
    case 6:
        check((errno = posix_memalign(&memory, 4096, size)) == 0, "posix_memalign");
        break;
    case 7:
        check((memory = strdup("a string to keep")) != NULL, "strdup");
        size = strlen(memory) + 1;
        break;
    case 8:
        check(malloc(too_much) == NULL, "malloc of too much");
        /* fall through */
    default:
        memory = malloc(size);
    }
    check(memory != NULL, "allocation");
    *item = (struct block){memory, size};
}

static struct range *free_slot(struct worker *self) {
    for (struct range *item = self->ranges; item < self->ranges + RANGES; item++)
        if (!item->pages)
            return item;
    return NULL;
}

/* A new mapping, or one that is moved, replaced or unmapped, whole or in part. */
void range(struct worker *self, struct range *item) {
    struct range *other = free_slot(self);
    size_t pages = 1 + below(self, 40), first, length;
    char *begin;
    if (!item->pages) {
        begin = mmap(NULL, pages * PAGE - below(self, PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(begin != MAP_FAILED, "mmap");
        *item = (struct range){begin, pages};
        return;
    }
    first = below(self, item->pages);
    length = 1 + below(self, item->pages - first);
    switch (below(self, 6)) {
    case 0:
        check(munmap(item->begin, item->pages * PAGE) == 0, "munmap");
        item->pages = 0;
        return;
    case 1: /* a part */
        if (!other)
            return;
        check(munmap(item->begin + first * PAGE, length * PAGE - below(self, PAGE)) == 0, "munmap of a part");
        *other = (struct range){item->begin + (first + length) * PAGE, item->pages - first - length};
        item->pages = first;
        return;
    case 2: /* in place, so that it remains two ranges */
        if (!other || first == 0 || first + length < item->pages)
            return;
        begin = mmap(item->begin + first * PAGE, length * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        check(begin == item->begin + first * PAGE, "mmap in place");
        *other = (struct range){begin, length};
        item->pages = first;
        return;
    case 3:
        check(mremap(item->begin, item->pages * PAGE, 1ul << 50, MREMAP_MAYMOVE) == MAP_FAILED, "mremap to too much");
        check(mmap(NULL, 1ul << 50, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "mmap of too much");
        check(munmap(item->begin + 1, PAGE) == -1, "munmap at no page");
        return;
    default:
        begin = mremap(item->begin, item->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
        check(begin != MAP_FAILED, "mremap");
        *item = (struct range){begin, pages};
    }
}

static char *range_for_all(void) {
    char *begin = mmap(NULL, COMMON * threads * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(begin != MAP_FAILED, "mmap for all");
    return begin;
}

/* Exchanges a block with other threads. */
static void exchange(struct block *mine, struct block *theirs) {
    struct block kept;
    pthread_mutex_lock(&lock);
    kept = *theirs;
    *theirs = *mine;
    *mine = kept;
    pthread_mutex_unlock(&lock);
}

static void *work(void *argument) {
    struct worker *self = argument;
    self->blocks[0] = (struct block){malloc(8), 8}; /* for which the C library maps an arena */
    for (int step = 0; step < steps; step++) {
        switch (below(self, 4)) {
        case 0:
            range(self, &self->ranges[below(self, RANGES)]);
            break;
        case 1:
            exchange(&self->blocks[below(self, BLOCKS)], &shared[below(self, BLOCKS)]);
            break;
        default:
            block(self, &self->blocks[below(self, BLOCKS)]);
        }
    }
    pthread_barrier_wait(&together);
    for (int page = 0; page < COMMON; page += 2)
        check(munmap(common + (page * threads + (self - workers)) * PAGE, PAGE) == 0, "munmap in common");
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned long count = 0, bytes = 0, ranges = COMMON / 2, mapped;
    threads = argc > 1 ? atoi(argv[1]) : 4;
    mapped = COMMON / 2 * threads * PAGE;
    steps = argc > 2 ? atoi(argv[2]) : 2000;
    mallopt(M_MMAP_THRESHOLD, LARGE);
    workers = calloc(threads, sizeof *workers);
    pthread_barrier_init(&together, NULL, threads + 1);
    for (int number = 0; number < threads; number++) {
        workers[number].random = (argc > 3 ? strtoul(argv[3], NULL, 10) : 1) * 1000 + number;
        check(pthread_create(&workers[number].thread, NULL, work, &workers[number]) == 0, "pthread_create");
    }
    common = range_for_all();
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    for (int number = 0; number <= threads; number++) {
        struct block *blocks = number < threads ? workers[number].blocks : shared;
        for (int slot = 0; slot < BLOCKS; slot++) {
            count += blocks[slot].memory != NULL;
            bytes += blocks[slot].size;
        }
        for (int slot = 0; number < threads && slot < RANGES; slot++) {
            ranges += workers[number].ranges[slot].pages > 0;
            mapped += workers[number].ranges[slot].pages * PAGE;
        }
    }
    printf("%lu %lu %lu %lu %lu\n", count, bytes, ranges, mapped, threads * (64ul << 20) + mallinfo2().hblkhd);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
