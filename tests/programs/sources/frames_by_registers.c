/* For tests/kernel/test_chosen_unwinding.py. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>
/* As vfork of glibc: the return address is in rdi. As what aligns its stack: the frame is at r10. Both call getsid. */
__asm__(".text\nby_rdi: .cfi_startproc\n pop %rdi\n .cfi_adjust_cfa_offset -8\n .cfi_register %rip, %rdi\n"
        "mov $124, %eax\n syscall\n push %rdi\n .cfi_adjust_cfa_offset 8\n .cfi_restore %rip\n ret\n .cfi_endproc\n"
        ".type by_rdi, @function\n .size by_rdi, . - by_rdi\n"
        "by_r10: .cfi_startproc\n lea 8(%rsp), %r10\n .cfi_def_cfa %r10, 0\n and $-64, %rsp\n mov $124, %eax\n"
        "syscall\n lea -8(%r10), %rsp\n .cfi_def_cfa %rsp, 8\n ret\n .cfi_endproc\n"
        ".type by_r10, @function\n .size by_r10, . - by_r10\n");
void by_rdi(void), by_r10(void);
__attribute__((noinline)) int inner(void) {
    by_rdi();
    by_r10();
    int child = vfork();
    if (!child)
        _exit(0);
    return waitpid(child, NULL, 0);
}
int main(void) { return inner() < 0; }
