/* USDT probes without systemtap's sys/sdt.h: a nop, and a note that says where it is and where the arguments are.
 * The form of the note: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation (version 3). */
#ifndef PROBES_H
#define PROBES_H

#define PROBE_NOTE(provider, name, semaphore, arguments) PROBE_NOTE_AT("nop", provider, name, semaphore, arguments)

/* The same with another instruction than a nop of one byte. */
#define PROBE_NOTE_AT(instruction, provider, name, semaphore, arguments)                                      \
    "990: " instruction "\n"                                                                                  \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                              \
    ".balign 4\n"                                                                                             \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                                        \
    "991: .asciz \"stapsdt\"\n"                                                                               \
    "992: .balign 4\n"                                                                                        \
    "993: .8byte 990b\n"                                                                                      \
    ".8byte _.stapsdt.base\n"                                                                                 \
    ".8byte " semaphore "\n"                                                                                  \
    ".asciz \"" provider "\"\n"                                                                               \
    ".asciz \"" name "\"\n"                                                                                   \
    ".asciz \"" arguments "\"\n"                                                                              \
    "994: .balign 4\n"                                                                                        \
    ".popsection\n"                                                                                           \
    ".ifndef _.stapsdt.base\n"                                                                                \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                                   \
    ".weak _.stapsdt.base\n"                                                                                  \
    ".hidden _.stapsdt.base\n"                                                                                \
    "_.stapsdt.base: .space 1\n"                                                                              \
    ".size _.stapsdt.base, 1\n"                                                                               \
    ".popsection\n"                                                                                           \
    ".endif\n"

#define PROBE0(provider, name) __asm__ volatile(PROBE_NOTE(provider, name, "0", ""))
#define PROBE1(provider, name, a) __asm__ volatile(PROBE_NOTE(provider, name, "0", "-4@%0") : : "nor"((int)(a)))
/* A signed 4-byte value, an unsigned 8-byte one, a pointer and a constant. */
#define PROBE4(provider, name, a, b, c, constant)                                                            \
    __asm__ volatile(PROBE_NOTE(provider, name, "0", "-4@%0 8@%1 8@%2 -4@$" #constant)                        \
                     : : "nor"((int)(a)), "nor"((unsigned long)(b)), "nor"(c))
/* With a semaphore: `unsigned short NAME_semaphore` counts the tracers, so that the program can leave costly work out. */
#define PROBE_SEMAPHORE(symbol) __attribute__((section(".probes"), used)) volatile unsigned short symbol
#define PROBE1_SEMAPHORE(provider, name, symbol, a)                                                           \
    __asm__ volatile(PROBE_NOTE(provider, name, #symbol, "-4@%0") : : "nor"((int)(a)))

#endif
