/* A library: library_add(a, b) returns a + b; library_scale calls a static helper. */
int library_add(int a, int b) { return a + b; }

static int helper(int n) {
    __asm__ volatile("" : "+r"(n));
    return n * 3;
}

int library_scale(int n) { return helper(n); }
