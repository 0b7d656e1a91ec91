/* uselib [TIMES]: calls library_add(N, 1) and library_scale(N) TIMES times (10). */
#include <stdlib.h>

int library_add(int, int);
int library_scale(int);

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 10;
    volatile int total = 0;
    for (int n = 0; n < times; n++)
        total += library_add(n, 1) + library_scale(n);
    return 0;
}
