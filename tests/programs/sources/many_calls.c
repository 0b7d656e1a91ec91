/* many_calls: makes each of many system calls once, with arguments that have a meaning; run in an empty folder. Results
 * do not matter: what is not permitted here fails in every tracer alike. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#define CALL(name, ...) syscall(SYS_##name, ##__VA_ARGS__)

int main(void) {
    static char page[65536] __attribute__((aligned(4096)));
    struct timespec soon = {0, 1000}, now[2] = {{1, 2}, {3, 4}};
    struct timeval micro = {0, 1000}, times[2] = {{1, 2}, {3, 4}};
    struct stat status;
    struct statfs fs;
    struct rusage usage;
    struct rlimit limit;
    struct itimerval timer = {{0, 0}, {0, 0}};
    struct itimerspec spec = {{0, 0}, {100, 0}};
    struct sched_param parameter = {0};
    struct epoll_event event = {EPOLLIN, {.fd = 3}};
    struct iovec vector[2] = {{"abc", 3}, {"defg", 4}}, room[2] = {{page, 3}, {page + 8, 9}};
    struct utsname name;
    struct sysinfo info;
    struct tms ticks;
    sigset_t set;
    cpu_set_t cpus;
    gid_t groups[64];
    int pair[2], one = 1, number, queue;
    socklen_t length = sizeof one;
    unsigned cpu, node;
    loff_t offset = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    int file = CALL(open, "file", O_CREAT | O_RDWR | O_TRUNC, 0644);
    int other = CALL(creat, "other", 0600);
    CALL(pwrite64, file, "some text", 9, 0);
    CALL(pread64, file, page, 4, 2);
    CALL(pwritev, file, vector, 2, 0, 0);
    CALL(preadv, file, room, 2, 0, 0);
    CALL(pwritev2, file, vector, 2, 0, 0, 0);
    CALL(preadv2, file, room, 2, 0, 0, 0);
    CALL(stat, "file", &status);
    CALL(lstat, "file", &status);
    CALL(fstat, file, &status);
    CALL(statfs, "/", &fs);
    CALL(fstatfs, file, &fs);
    CALL(truncate, "file", 100);
    CALL(ftruncate, file, 50);
    CALL(fallocate, file, FALLOC_FL_KEEP_SIZE, 0, 4096);
    CALL(fadvise64, file, 0, 100, POSIX_FADV_WILLNEED);
    CALL(readahead, file, 0, 100);
    CALL(fsync, file);
    CALL(fdatasync, file);
    CALL(sync_file_range, file, 0, 10, SYNC_FILE_RANGE_WRITE);
    CALL(sendfile, other, file, &offset, 10);
    CALL(copy_file_range, file, NULL, other, NULL, 5, 0);
    CALL(flock, file, LOCK_EX | LOCK_NB);
    CALL(fchmod, file, 0600);
    CALL(chmod, "file", 0640);
    CALL(fchmodat, AT_FDCWD, "file", 0644);
    CALL(chown, "file", 0, 0);
    CALL(fchown, file, 0, 0);
    CALL(lchown, "file", 0, 0);
    CALL(fchownat, AT_FDCWD, "file", 0, 0, AT_SYMLINK_NOFOLLOW);
    CALL(utime, "file", &(struct utimbuf){1, 2});
    CALL(utimes, "file", times);
    CALL(futimesat, AT_FDCWD, "file", times);
    CALL(utimensat, AT_FDCWD, "file", now, 0);
    CALL(link, "file", "hard");
    CALL(linkat, AT_FDCWD, "file", AT_FDCWD, "hard2", 0);
    CALL(symlink, "file", "soft");
    CALL(readlink, "soft", page, 100);
    CALL(readlinkat, AT_FDCWD, "soft", page, 100);
    CALL(rename, "hard", "renamed");
    CALL(renameat2, AT_FDCWD, "hard2", AT_FDCWD, "renamed", 1);
    CALL(unlink, "renamed");
    CALL(mkdir, "folder", 0755);
    CALL(mkdirat, AT_FDCWD, "folder2", 0755);
    CALL(rmdir, "folder2");
    CALL(mknod, "fifo", S_IFIFO | 0600, 0);
    CALL(chdir, "folder");
    CALL(chdir, "..");
    CALL(umask, 022);
    CALL(access, "file", R_OK | W_OK);
    CALL(faccessat2, AT_FDCWD, "file", R_OK, AT_EACCESS);
    CALL(setxattr, "file", "user.name", "value", 5, 0);
    CALL(getxattr, "file", "user.name", page, 100);
    CALL(listxattr, "file", page, 100);
    CALL(fremovexattr, file, "user.name");
    CALL(dup, file);
    CALL(dup2, file, 20);
    CALL(dup3, file, 21, O_CLOEXEC);
    CALL(pipe, pair);
    CALL(tee, pair[0], pair[1], 10, SPLICE_F_NONBLOCK);
    CALL(splice, file, NULL, pair[1], NULL, 4, 0);
    CALL(vmsplice, pair[1], vector, 1, 0);
    CALL(poll, &(struct pollfd){pair[0], POLLIN, 0}, 1, 0);
    CALL(ppoll, &(struct pollfd){pair[0], POLLIN | POLLERR, 0}, 1, &soon, NULL, 8);
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(pair[0], &reads);
    CALL(select, pair[0] + 1, &reads, NULL, NULL, &micro);
    CALL(epoll_create, 1);
    int polled = CALL(epoll_create1, EPOLL_CLOEXEC);
    CALL(epoll_ctl, polled, EPOLL_CTL_ADD, pair[0], &event);
    CALL(epoll_wait, polled, &event, 1, 0);
    CALL(epoll_pwait, polled, &event, 1, 0, &set, 8);
    CALL(eventfd2, 5, EFD_NONBLOCK);
    CALL(signalfd4, -1, &set, 8, SFD_CLOEXEC);
    int timerfd = CALL(timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK);
    CALL(timerfd_settime, timerfd, 0, &spec, NULL);
    CALL(timerfd_gettime, timerfd, &spec);
    int watches = CALL(inotify_init1, IN_NONBLOCK);
    CALL(inotify_add_watch, watches, ".", IN_CREATE | IN_DELETE);
    CALL(inotify_rm_watch, watches, 1);
    CALL(memfd_create, "memory", MFD_CLOEXEC);
    CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, pair);
    CALL(sendto, pair[0], "hello", 5, 0, NULL, 0);
    CALL(recvfrom, pair[1], page, 100, 0, NULL, NULL);
    CALL(setsockopt, pair[0], SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    CALL(getsockopt, pair[0], SOL_SOCKET, SO_TYPE, &number, &length);
    CALL(shutdown, pair[0], SHUT_WR);
    int listens = CALL(socket, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {AF_UNIX, "listens"};
    CALL(bind, listens, &address, 10);
    CALL(listen, listens, 5);
    CALL(accept4, listens, NULL, NULL, SOCK_CLOEXEC);
    length = sizeof address;
    CALL(getsockname, listens, &address, &length);
    CALL(getpeername, pair[0], &address, &length);
    CALL(getrusage, RUSAGE_SELF, &usage);
    CALL(getrlimit, RLIMIT_NOFILE, &limit);
    CALL(setrlimit, RLIMIT_NOFILE, &limit);
    CALL(getpriority, PRIO_PROCESS, 0);
    CALL(setpriority, PRIO_PROCESS, 0, 0);
    CALL(sched_getscheduler, 0);
    CALL(sched_getparam, 0, &parameter);
    CALL(sched_setscheduler, 0, SCHED_OTHER, &parameter);
    CALL(sched_get_priority_max, SCHED_FIFO);
    CALL(sched_get_priority_min, SCHED_FIFO);
    CALL(sched_rr_get_interval, 0, &soon);
    CALL(sched_getaffinity, 0, sizeof cpus, &cpus);
    CALL(sched_yield);
    CALL(getcpu, &cpu, &node, NULL);
    CALL(getitimer, ITIMER_REAL, &timer);
    CALL(setitimer, ITIMER_REAL, &timer, NULL);
    CALL(alarm, 0);
    soon.tv_nsec = 1000, soon.tv_sec = 0;
    CALL(nanosleep, &soon, NULL);
    CALL(clock_nanosleep, CLOCK_MONOTONIC, 0, &soon, NULL);
    CALL(clock_getres, CLOCK_MONOTONIC, &soon);
    CALL(times, &ticks);
    CALL(sysinfo, &info);
    CALL(uname, &name);
    CALL(getgroups, 64, groups);
    CALL(getresuid, groups, groups + 1, groups + 2);
    CALL(getresgid, groups, groups + 1, groups + 2);
    CALL(setuid, getuid());
    CALL(setgid, getgid());
    CALL(setreuid, -1, -1);
    CALL(setregid, -1, -1);
    CALL(setresuid, -1, -1, -1);
    CALL(setresgid, -1, -1, -1);
    CALL(setfsuid, -1);
    CALL(setfsgid, -1);
    CALL(getsid, 0);
    CALL(capget, NULL, NULL);
    CALL(personality, 0xffffffff);
    CALL(prctl, PR_SET_NAME, "renamed", 0, 0, 0);
    CALL(prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
    CALL(mlock, page, 4096);
    CALL(munlock, page, 4096);
    CALL(msync, page, 4096, MS_ASYNC);
    CALL(madvise, page, 4096, MADV_NORMAL);
    CALL(mincore, page, 4096, page + 8192);
    CALL(mlockall, MCL_CURRENT | MCL_ONFAULT);
    CALL(munlockall);
    CALL(rt_sigpending, &set, 8);
    CALL(rt_sigtimedwait, &set, NULL, &soon, 8);
    CALL(sigaltstack, NULL, NULL);
    CALL(tgkill, getpid(), getpid(), 0);
    CALL(tkill, getpid(), 0);
    CALL(futex, &number, FUTEX_WAKE_PRIVATE, 1);
    CALL(get_robust_list, 0, page, page + 8);
    CALL(shmdt, NULL);
    int memory = CALL(shmget, IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    CALL(shmctl, memory, IPC_RMID, NULL);
    int semaphore = CALL(semget, IPC_PRIVATE, 1, IPC_CREAT | 0600);
    CALL(semop, semaphore, &(struct sembuf){0, 1, 0}, 1);
    CALL(semctl, semaphore, 0, IPC_RMID, 0);
    queue = CALL(msgget, IPC_PRIVATE, IPC_CREAT | 0600);
    CALL(msgctl, queue, IPC_RMID, NULL);
    CALL(process_vm_readv, getpid(), room, 1, vector, 1, 0);
    CALL(kcmp, getpid(), getpid(), 0, 0, 0);
    CALL(pidfd_open, getpid(), 0);
    CALL(close_range, 30, 40, 0);
    CALL(membarrier, 0, 0, 0);
    CALL(syncfs, file);
    CALL(getpgrp);
    CALL(setpgid, 0, 0);
    CALL(waitid, P_ALL, 0, NULL, WEXITED | WNOHANG, NULL);
    CALL(openat2, AT_FDCWD, "file", &(unsigned long[3]){O_RDONLY, 0, 0}, 24);
    CALL(umount2, "/nonexistent", MNT_DETACH);
    CALL(mount, "none", "/nonexistent", "tmpfs", MS_NOSUID | MS_RDONLY, NULL);
    CALL(pivot_root, "/nonexistent", "/nonexistent");
    CALL(chroot, "/nonexistent");
    CALL(swapoff, "/nonexistent");
    CALL(acct, "/nonexistent/file");
    CALL(sethostname, page, 100000);
    CALL(unshare, 0);
    CALL(setns, -1, CLONE_NEWNET);
    CALL(sync);
    CALL(getppid);
    CALL(gettid);
    return 0;
}
