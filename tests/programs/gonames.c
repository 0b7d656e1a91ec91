/* gonames: functions with the names that Go's linker gives, one of them of Go's runtime. Nothing of it is Go; the return
 * instructions of main.work() are at its offsets 1 and 9, and the byte of one at 5. */
__asm__(".text\n"
        ".globl runtime.morestack\n.type runtime.morestack,@function\nruntime.morestack: ret\n"
        ".size runtime.morestack, . - runtime.morestack\n"
        ".globl main.work\n.type main.work,@function\n"
        "main.work: .byte 0x90, 0xc3, 0x48, 0xc7, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0xc3\n"
        ".size main.work, . - main.work\n");

int main(void) { return 0; }
