// fractions [TIMES] [SEED]: calls check() TIMES times (1000) with random bits as floating-point numbers, and what C makes of them.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FACTOR 1000

struct fractions {
    double d, e, wide;
    float f;
    int8_t byte;
    uint8_t octet;
    int32_t whole;
    uint32_t natural;
    int64_t large;
    uint64_t huge;
    int64_t scaled, scaled_float;
    int less, at_most, equal, less_than_float, above, whole_float;
};

__attribute__((noinline)) int check(struct fractions *p) {
    __asm__ volatile("" ::"r"(p) : "memory");
    return p->less;
}

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

#define CONVERT(name, type, low, high, bits)                                                                           \
    static type name(double d) {                                                                                       \
        if (isnan(d))                                                                                                  \
            return 0;                                                                                                  \
        if (d >= (bits))                                                                                               \
            return high;                                                                                               \
        return d <= (double)(low) ? low : (type)d;                                                                     \
    }
CONVERT(to_byte, int8_t, INT8_MIN, INT8_MAX, 0x1p7)
CONVERT(to_octet, uint8_t, 0, UINT8_MAX, 0x1p8)
CONVERT(to_whole, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
CONVERT(to_natural, uint32_t, 0, UINT32_MAX, 0x1p32)
CONVERT(to_large, int64_t, INT64_MIN, INT64_MAX, 0x1p63)
CONVERT(to_huge, uint64_t, 0, UINT64_MAX, 0x1p64)

static int64_t scaled(double d) {
    if (isnan(d))
        return 0;
    // A product of 53 by 10 bits fits the 64 of a long double; halves go away from zero.
    long double product = roundl((long double)d * FACTOR);
    return product >= 0x1p63L ? INT64_MAX : product <= -0x1p63L ? INT64_MIN : (int64_t)product;
}

// Random bits, small numbers with a fraction, numbers at the ends of integers, subnormal ones, specials.
static double number(void) {
    static const double special[] = {0.0, -0.0, 0.5, -0.5, 1.0, 0x1p31, 0x1p32, 0x1p52, 0x1p53, 0x1p63, -0x1p63, 0x1p64,
                                     0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023, 0.0005, 0.0015, 2.3, INFINITY,
                                     -INFINITY, NAN};
    uint64_t bits = next();
    double d;
    memcpy(&d, &bits, sizeof d);
    switch (next() % 6) {
    case 0: return d;
    case 1: return (double)(int64_t)next() / (double)(1ull << next() % 63);
    case 2: return (double)(1ull << next() % 64) + (double)((int)(next() % 5) - 2) / 2;
    case 3: bits &= 0x800fffffffffffffull >> next() % 40; memcpy(&d, &bits, sizeof d); return d;
    case 4: return special[next() % (sizeof special / sizeof *special)];
    default: return (double)((int64_t)(next() % 4000001) - 2000000) / 2000;
    }
}

static float single(void) {
    uint32_t bits = (uint32_t)next();
    float f;
    if (next() % 3 == 0)
        bits &= 0x807fffffu >> next() % 23; // subnormal
    memcpy(&f, &bits, sizeof f);
    return next() % 3 ? f : (float)number();
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 1000, sum = 0;
    state = 88172645463325252ull ^ (argc > 2 ? strtoull(argv[2], 0, 0) << 20 : 0);
    for (int round = 0; round < times; round++) {
        struct fractions s = {.d = number(), .f = single()};
        s.e = next() % 4 ? number() : next() % 2 ? s.d : -s.d;
        s.wide = s.f;
        s.byte = to_byte(s.d), s.octet = to_octet(s.d), s.whole = to_whole(s.d), s.natural = to_natural(s.d);
        s.large = to_large(s.d), s.huge = to_huge(s.d), s.whole_float = to_whole(s.f);
        s.scaled = scaled(s.d), s.scaled_float = scaled(s.f);
        s.less = s.d < s.e, s.at_most = s.d <= s.e, s.equal = s.d == s.e, s.less_than_float = s.d < s.f;
        s.above = s.d > 1.5;
        sum += check(&s);
    }
    return sum < 0;
}
