/* redzone: passes static probes on nops of 5 bytes 1000 times each; prints how often data below the stack pointer was
 * overwritten: "leaf N framed N entry N" (x86-64).
 *
 *   zone:leaf     in a function that keeps data in its red zone (the 128 bytes below the stack pointer)
 *   zone:framed   in a function that moves the stack pointer and calls another one
 *   zone:entry    at the first instruction of a function that uses its red zone after it */
#include <stdio.h>

#include "probes.h"

#define TIMES 1000

#ifdef __x86_64__
#define NOP5 ".byte 0x0f,0x1f,0x44,0x00,0x00"
#define FUNCTION(name, code)                                                                                          \
    long name(long value);                                                                                            \
    __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" code "\n ret\n.size " #name             \
            ",.-" #name "\n");

FUNCTION(same, " movq %rdi,%rax\n")
FUNCTION(leaf, " movq %rdi,-8(%rsp)\n movq %rdi,-16(%rsp)\n movq %rdi,-24(%rsp)\n movq %rdi,-32(%rsp)\n"
               PROBE_NOTE_AT(NOP5, "zone", "leaf", "0", "")
               " xorl %eax,%eax\n cmpq %rdi,-8(%rsp)\n setne %al\n cmpq %rdi,-16(%rsp)\n setne %cl\n orb %cl,%al\n"
               " cmpq %rdi,-24(%rsp)\n setne %cl\n orb %cl,%al\n cmpq %rdi,-32(%rsp)\n setne %cl\n orb %cl,%al\n")
FUNCTION(framed, " subq $24,%rsp\n movq %rdi,8(%rsp)\n"
                 PROBE_NOTE_AT(NOP5, "zone", "framed", "0", "")
                 " movq 8(%rsp),%rdi\n call same\n subq 8(%rsp),%rax\n addq $24,%rsp\n")
FUNCTION(entry, PROBE_NOTE_AT(NOP5, "zone", "entry", "0", "")
                " movq %rdi,-8(%rsp)\n movq -8(%rsp),%rax\n subq %rdi,%rax\n")
#else
static long leaf(long value) { return value * 0; }
static long framed(long value) { return value * 0; }
static long entry(long value) { return value * 0; }
#endif

int main(void) {
    int in_leaf = 0, in_framed = 0, at_entry = 0;
    for (long round = 0; round < TIMES; round++) {
        in_leaf += leaf(0x1234500 + round) != 0;
        in_framed += framed(0x1234500 + round) != 0;
        at_entry += entry(0x1234500 + round) != 0;
    }
    printf("leaf %d framed %d entry %d\n", in_leaf, in_framed, at_entry);
    return 0;
}
