#include <stdio.h>
#include <stdlib.h>
enum colour { RED, GREEN = 5, NONE = -1 };
struct point { int x; unsigned flag : 3, rest : 5; char tag[8]; union { long a; char b; }; struct point *next; };
struct big { long a[4]; };
static inline __attribute__((always_inline)) int inner(int v) {
    return v * 3 + rand();
}
__attribute__((noinline)) int work(const char *name, struct point *p, enum colour c, long a4, long a5, long a6, int a7,
                                   struct big b) {
    int r = inner(p->x);
    return r + c + (int)(a4 + a5 + a6) + a7 + (name ? name[0] : 0) + (int)b.a[1];
}
__attribute__((noinline)) double mixed(double d, int n) { return d * n; }
int main(int argc, char **argv) {
    struct point p = {argc, 2, 3, "tag", {1}, 0};
    struct big b = {{1, 2, 3, 4}};
    printf("%d %f\n", work(argv[0], &p, GREEN, 4, 5, 6, 7, b), mixed(1.5, argc));
    return 0;
}
