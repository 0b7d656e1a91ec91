/* syscalls [TIMES]: TIMES (10 when not given) of each: getppid(), openat() of /pytrace/none/N, write() of N bytes to /dev/null,
 * lseek(-1, N, 1), which fails with EBADF, and nanosleep of 1 µs. All raw, so that nothing else is counted. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 10;
    char block[4096] = {0};
    int null = open("/dev/null", O_WRONLY);
    for (int n = 0; n < times; n++) {
        char path[64];
        struct timespec pause = {0, 1000};
        snprintf(path, sizeof path, "/pytrace/none/%d", n);
        syscall(SYS_getppid);
        syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
        syscall(SYS_write, null, block, n % 4096);
        syscall(SYS_lseek, -1, n, 1);
        syscall(SYS_nanosleep, &pause, NULL);
    }
    return 0;
}
