/* vectors FILE: calls functions that start with vector instructions 100 times each, and writes the results into FILE.
 *
 * vector_safe_*: probes do no harm. vector_harm_*: the kernel's uprobes misread the first instruction (x86-64).
 * Functions whose instructions the processor does not have are left out. */
#include <stdio.h>

#define TIMES 100

#ifdef __x86_64__
#include <emmintrin.h>
#include <string.h>

typedef __m128i function(__m128i first, __m128i second, long, long, long, long, long fifth);

/* After the first instruction come enough bytes that a copy of 16 bytes does not hold the return. */
#define LONG_TAIL " vpaddb %xmm1,%xmm0,%xmm0\n vpaddb %xmm1,%xmm0,%xmm0\n vpaddb %xmm1,%xmm0,%xmm0\n vpaddb %xmm1,%xmm0,%xmm0\n"
#define FUNCTION(name, code)                                                                                          \
    function name;                                                                                                    \
    __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n " code "\n ret\n.size " #name           \
            ",.-" #name "\n");

FUNCTION(vector_safe_add, "vaddps %xmm1,%xmm0,%xmm0")
FUNCTION(vector_safe_and, "vandps %xmm1,%xmm0,%xmm0")
FUNCTION(vector_harm_shuffle, "vpshufd $0x1b,%xmm0,%xmm0")
FUNCTION(vector_harm_equal, "vpcmpeqb %xmm1,%xmm0,%xmm0")
FUNCTION(vector_harm_low, "vmovd %xmm0,%eax\n vmovd %eax,%xmm0")
FUNCTION(vector_harm_less, "vcmpltps %xmm1,%xmm0,%xmm0\n" LONG_TAIL)
FUNCTION(vector_harm_minus, "vpsubsb %xmm1,%xmm0,%xmm0")
FUNCTION(vector_harm_minus_words, "vpsubsw %xmm1,%xmm0,%xmm0")
FUNCTION(vector_harm_or, "vpor %xmm1,%xmm0,%xmm0")
FUNCTION(vector_harm_exchange, ".byte 0x49,0x90\n vmovq %rax,%xmm0")
FUNCTION(vector_harm_spread, "vpbroadcastb %xmm0,%xmm0")
FUNCTION(vector_harm_fused, "vfnmadd132ss %xmm0,%xmm1,%xmm0")
FUNCTION(vector_harm_mask, "kmovw mask_of_vectors(%rip),%k1\n kmovw %k1,%eax\n vmovd %eax,%xmm0")
FUNCTION(vector_harm_wide, "vporq %xmm1,%xmm0,%xmm16\n vmovdqu64 %xmm16,%xmm0")
__asm__(".section .rodata\n.balign 4\nmask_of_vectors: .long 0x1234\n.text\n");

#define CALL(name) call(file, #name, name)

static void call(FILE *file, const char *name, function *run) {
    __m128i first = _mm_set_epi32(0x40404040, 0x3f800001, 0xc0a80001, 0x41234567);
    __m128i second = _mm_set_epi32(0x3f800000, 0x3e9f1000, 0xc1a80001, 0x40222222);
    for (int round = 0; round < TIMES; round++) {
        __m128i result = run(first, second, 0, 0, 0, 0, 7);
        long words[2];
        memcpy(words, &result, sizeof words);
        fprintf(file, "%s %lx %lx\n", name, words[0], words[1]);
    }
}

static void run(FILE *file) {
    if (!__builtin_cpu_supports("avx"))
        return;
    CALL(vector_safe_add);
    CALL(vector_safe_and);
    CALL(vector_harm_shuffle);
    CALL(vector_harm_equal);
    CALL(vector_harm_low);
    CALL(vector_harm_less);
    CALL(vector_harm_minus);
    CALL(vector_harm_minus_words);
    CALL(vector_harm_or);
    CALL(vector_harm_exchange);
    if (__builtin_cpu_supports("avx2"))
        CALL(vector_harm_spread);
    if (__builtin_cpu_supports("fma"))
        CALL(vector_harm_fused);
    if (__builtin_cpu_supports("avx512f"))
        CALL(vector_harm_mask);
    if (__builtin_cpu_supports("avx512vl"))
        CALL(vector_harm_wide);
}
#else
static void run(FILE *file) { (void)file; }
#endif

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "w") : stdout;
    if (!file)
        return 1;
    run(file);
    return fclose(file) != 0;
}
