/* gonames: functions that look like Go's, with the tables that Go's linker writes. Nothing of it is
 * Go. main.work() returns 7 for 0 and else 0xc3; main() calls it with 0, 1, 2 … as often as its argument says.
 * main.stop() has no return instruction. */
#include <stdlib.h>

__asm__(".text\n"
        ".type main.work,@function\n"
        "main.work: test %edi, %edi\n" /* offset 0 */
        "mov $7, %eax\n"               /* 2 */
        "jne 1f\n"                     /* 7 */
        "ret\n"                        /* 9 */
        "1: mov $0xc3, %eax\n"         /* 10: with the byte of a ret in it */
        "ret\n"                        /* 15 */
        ".size main.work, . - main.work\n"
        ".type main.stop,@function\n"
        "main.stop: ud2\n"
        ".size main.stop, . - main.stop\n"
        ".section .gopclntab,\"aw\"\n"
        "table: .long 0xfffffff0\n.byte 0, 0, 1, 8\n.quad 2, 0, 0\n"
        ".quad names - table, names - table, names - table, steps - table, 1f - table\n"
        "1: .long 0, info - 1b, 16, stop - 1b, 18\n"
        "info: .long 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0\n"
        "stop: .long 16, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0\n"
        "names: .asciz \"main.work\"\n.asciz \"main.stop\"\n"
        "steps: .byte 2, 16, 0\n" /* no frame in any of the 16 bytes */
        ".section .go.module,\"aw\"\n"
        ".quad table, names\n.fill 20, 8, 0\n.quad main.work\n.fill 25, 8, 0\n"
        ".text\n");

extern int work(int n) __asm__("main.work");

int main(int argc, char **argv) {
    int sum = 0;
    for (int n = 0; n < (argc > 1 ? atoi(argv[1]) : 0); n++)
        sum += work(n);
    return sum < 0;
}
