/* leaks [KEPT [FREED [SIZE [around]]]]: keeps KEPT (10) allocations of SIZE (1000) bytes and frees FREED (20) others of that size,
 * in keep() and use(); with `around` it keeps one more that is a byte smaller, and one a byte larger. Then prints how many bytes of
 * that size it keeps, and ends when standard input does. */
#include <stdio.h>
#include <stdlib.h>

static void *volatile kept[4098];

void keep(int number, size_t size) {
    kept[number] = malloc(size);
}

void use(size_t size) {
    void *volatile memory = malloc(size);
    free(memory);
}

int main(int argc, char **argv) {
    int keeps = argc > 1 ? atoi(argv[1]) : 10;
    int frees = argc > 2 ? atoi(argv[2]) : 20;
    size_t size = argc > 3 ? strtoul(argv[3], NULL, 10) : 1000;
    if (keeps > 4096)
        return 2;
    for (int number = 0; number < keeps; number++)
        keep(number, size);
    if (argc > 4) {
        keep(keeps, size - 1);
        keep(keeps + 1, size + 1);
    }
    for (int number = 0; number < frees; number++)
        use(size);
    printf("%zu\n", keeps * size);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
