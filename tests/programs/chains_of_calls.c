/* chains_of_calls N: keeps N allocations of 1001 bytes, each of another stack: calls of left() and right() by the bits of its number. */
#include <stdio.h>
#include <stdlib.h>

#define DEPTH 16

static void *volatile kept;

void right(unsigned long number, int depth);

void left(unsigned long number, int depth) {
    if (depth == 0)
        kept = malloc(1001);
    else if (number & 1)
        right(number >> 1, depth - 1);
    else
        left(number >> 1, depth - 1);
}

void right(unsigned long number, int depth) {
    if (depth == 0)
        kept = malloc(1001);
    else if (number & 1)
        right(number >> 1, depth - 1);
    else
        left(number >> 1, depth - 1);
}

int main(int argc, char **argv) {
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    for (unsigned long number = 0; number < count; number++)
        left(number, DEPTH);
    return 0;
}
