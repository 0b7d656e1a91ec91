/* calls [TIMES]: calls each function TIMES times (10 when not given) with arguments that follow from the round.
 *
 *   add(round, 2*round) returns 3*round                  six(1, 2, 3, 4, 5, round) returns 15 + round
 *   greet("round N") returns its length                  move(&point) with point = {round, -round, "p"}
 *   negative(round) returns -round                       outer(round) calls middle() calls inner() calls leaf(), which has no frame of its own
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum shape { ROUND = 1, SQUARE = 4 };

struct point {
    int x;
    long y;
    char name[8];
    unsigned flags : 3, level : 5;
    enum shape shape;
    struct { short row, column; } cell;
    struct point *next;
};

int add(int a, int b) { return a + b; }
long six(long a, long b, long c, long d, long e, long f) { return a + b + c + d + e + f; }
unsigned long greet(const char *text) { return strlen(text); }
int negative(int n) { return -n; }
unsigned char small(unsigned char n) { return n + 1; }
int leaf(int n) { __asm__ volatile("" : "+r"(n)); return n; }
int inner(int n) { return leaf(n) + 1; }
int middle(int n) { return inner(n) + 1; }
int outer(int n) { return middle(n) + 1; }

long move(struct point *point) {
    point->x += 1;
    return point->y;
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 10;
    volatile long total = 0;
    for (int round = 0; round < times; round++) {
        char text[32] = ""; /* what is after the string is zero */
        struct point last = {.x = 1000 + round, .y = 7, .name = "last", .shape = SQUARE};
        struct point point = {.x = round, .y = -round, .name = "p", .flags = 5, .level = 17, .shape = ROUND,
                              .cell = {3, -4}, .next = &last};
        snprintf(text, sizeof text, "round %d", round);
        total += add(round, 2 * round);
        total += six(1, 2, 3, 4, 5, round);
        total += greet(text);
        total += negative(round);
        total += small((unsigned char)round);
        total += outer(round);
        total += move(&point);
    }
    return total == -1;
}
