/* callmix [PROGRAM32]: waits for a byte on standard input, then makes system calls of many kinds, and ends.
 *
 *   each harmless one, with six different arguments        32-bit ones by int 0x80 (x86-64)
 *   from a signal handler, and rt_sigreturn                one that restart_syscall goes on with
 *   fork, vfork, a thread, execve of itself                execve of PROGRAM32, a 32-bit program, if given
 *   all numbers from 0 to 599 in a process whose seccomp filter denies them
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int harmless[] = {
    SYS_read, SYS_write, SYS_close, SYS_fstat, SYS_lseek, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev,
    SYS_dup3, SYS_fcntl, SYS_ioctl, SYS_flock, SYS_fsync, SYS_ftruncate, SYS_fchdir, SYS_fchmod, SYS_fchown,
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_sched_yield, SYS_getpriority, SYS_sendto, SYS_recvfrom,
    SYS_connect, SYS_bind, SYS_listen, SYS_getsockname, SYS_setsockopt, SYS_getsockopt, SYS_openat, SYS_mkdirat,
    SYS_unlinkat, SYS_readlinkat, SYS_faccessat, SYS_utimensat, SYS_epoll_ctl, SYS_epoll_pwait, SYS_signalfd4,
    SYS_timerfd_settime, SYS_fallocate, SYS_preadv, SYS_pwritev, SYS_mprotect, SYS_madvise, SYS_uname, SYS_statfs,
    SYS_sendfile, SYS_splice, SYS_copy_file_range, SYS_fadvise64, SYS_getdents64, SYS_newfstatat, SYS_statx,
};

static void *call_some(void *unused) {
    /* No descriptor is that high, and nothing is mapped at such addresses. */
    for (size_t at = 0; at < sizeof harmless / sizeof *harmless; at++)
        syscall(harmless[at], 0xffff0000 + at, 0x10001, 0x20002, 0x3000000003, 0x40004, -5L);
    return unused;
}

static long call32(long number) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(0), "c"(0), "d"(0) : "r8", "r9", "r10", "r11", "memory");
    return result;
#else
    return number;
#endif
}

static void on_signal(int number) { syscall(SYS_getpgid, number); }

static void interrupted_sleep(void) {
    struct timespec time = {0, 300000000};
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        usleep(50000);
        kill(parent, SIGSTOP);
        usleep(50000);
        kill(parent, SIGCONT);
        _exit(0);
    }
    nanosleep(&time, NULL);
    waitpid(child, NULL, 0);
}

static void run(const char *path, const char *word) {
    pid_t child = vfork();
    if (child == 0) {
        execl(path, path, word, NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

static void denied(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDOM),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(1);
    for (long number = 0; number < 600; number++) {
        int trap = 0;
#ifdef __x86_64__
        /* uretprobe and uprobe, which only the kernel's own code may call. */
        trap = number == 335 || number == 336;
#endif
        if (number != SYS_exit_group && !trap)
            syscall(number, 1, 2, 3, 4, 5, 6);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    char byte;
    pthread_t thread;
    if (argc > 1 && strcmp(argv[1], "again") == 0)
        return getpid() < 0;
    if (read(0, &byte, 1) != 1)
        return 1;
    call_some(NULL);
    for (long number = 0; number < 20; number++)
        call32(number % 2 ? 20 : 64);
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    interrupted_sleep();
    if (pthread_create(&thread, NULL, call_some, NULL) == 0)
        pthread_join(thread, NULL);
    run("/proc/self/exe", "again");
    if (argc > 1)
        run(argv[1], "");
    pid_t child = fork();
    if (child == 0)
        denied();
    waitpid(child, NULL, 0);
    return 0;
}
