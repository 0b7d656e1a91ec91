/* shapes [TIMES]: calls take(&thing, n) TIMES times (2) with a struct of all that C structs have, by_value(pair) and colour(c). */
#include <stdlib.h>
#include <string.h>

enum colour { RED, GREEN = 5, BLUE = -2 };
enum flags { READ = 1, WRITE = 2 };

struct pair { int left; unsigned char right; };

union number { int whole; float part; unsigned char bytes[4]; };

struct thing {
    signed char tiny;
    unsigned narrow : 3;
    int signed_bits : 5;
    unsigned long wide : 40;
    enum colour colour;
    union number number;
    struct pair pairs[2];
    int grid[2][3];
    const char *text;
    struct { short inner; union { int a; char b; }; };
    int (*callback)(int);
    char big[300];
    double real;
    _Bool yes;
    struct thing *next;
    int count;
    long tail[];
};

int take(struct thing *thing, int n) {
    __asm__ volatile("" : "+r"(n) : "r"(thing) : "memory");
    return n;
}
int by_value(struct pair pair) {
    __asm__ volatile("" : "+r"(pair.left));
    return pair.left + pair.right;
}
enum colour colour(enum colour c) {
    __asm__ volatile("" : "+r"(c));
    return c;
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 2;
    struct thing *thing = calloc(1, sizeof *thing + 4 * sizeof(long));
    volatile int total = 0;
    thing->tiny = -5;
    thing->narrow = 6;
    thing->signed_bits = -7;
    thing->wide = 0xABCDEF0123UL;
    thing->colour = BLUE;
    thing->number.whole = 0x01020304;
    thing->pairs[0] = (struct pair){-1, 255};
    thing->pairs[1] = (struct pair){2, 3};
    for (int n = 0; n < 6; n++)
        thing->grid[n / 3][n % 3] = n * n;
    thing->text = "text";
    (void)*(const volatile char *)thing->text; /* so that its page is there to be read */
    thing->inner = -300;
    thing->a = 77;
    memset(thing->big, 'x', 299);
    thing->yes = 1;
    thing->next = thing;
    thing->count = 4;
    for (int n = 0; n < 4; n++)
        thing->tail[n] = 10 * n;
    for (int n = 0; n < times; n++) {
        struct pair pair = {n, 200};
        total += take(thing, n) + by_value(pair) + colour(n ? GREEN : BLUE);
    }
    return 0;
}
