/* hot sched|net: waits for a byte on standard input, then does what passes the tracepoints of the scheduler (of the network), all in its
 * own context: nothing waits for a timer, and all packets are its own, on the loopback device. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 60

static int to[2], back[2];
static volatile pid_t partner;

static void check(int good) {
    if (!good) {
        perror("hot");
        exit(2);
    }
}

/* A long name first: what is after the NUL of the short one is then not zero where the kernel does not clear it. */
static void rename_to(const char *name) {
    prctl(PR_SET_NAME, "fifteen letters");
    prctl(PR_SET_NAME, name);
}

static void pin(pid_t task, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(task, sizeof set, &set);
}

static void *answer(void *argument) {
    char byte;
    rename_to("hot b");
    partner = gettid();
    while (read(to[0], &byte, 1) == 1 && byte)
        check(write(back[1], "x", 1) == 1);
    return argument;
}

static void exchange(void) {
    char byte;
    check(write(to[1], "x", 1) == 1 && read(back[0], &byte, 1) == 1);
}

static void wake_each_other(void) {
    int cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t other;
    check(!pipe(to) && !pipe(back));
    check(!pthread_create(&other, NULL, answer, NULL));
    exchange();
    for (int round = 0; round < ROUNDS; round++) {
        /* The partner waits: the next wake-up moves it. */
        pin(partner, round / 2 % cpus);
        setpriority(PRIO_PROCESS, partner, round % 20);
        exchange();
    }
    check(write(to[1], "", 1) == 1);
    pthread_join(other, NULL);
}

static void make_processes(void) {
    for (int round = 0; round < 8; round++) {
        int status, any = round & 1;
        pid_t child = fork();
        check(child >= 0);
        if (!child) {
            rename_to("hot child");
            if (round & 2)
                execl("/bin/true", "true", NULL);
            _exit(round);
        }
        check(waitpid(any ? -1 : child, &status, 0) == child);
    }
}

static void send_datagrams(int family) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr *address = family == AF_INET ? (void *)&four : (void *)&six;
    socklen_t size = family == AF_INET ? sizeof four : sizeof six;
    char data[1000] = {0};
    int in = socket(family, SOCK_DGRAM, 0), out = socket(family, SOCK_DGRAM, 0), closed = socket(family, SOCK_DGRAM, 0);
    check(in >= 0 && out >= 0 && closed >= 0);
    if (bind(in, address, size)) /* There is no IPv6. */
        return;
    check(!getsockname(in, address, &size));
    for (int round = 0; round < ROUNDS; round++) {
        check(sendto(out, data, 1 + 10 * round, 0, address, size) > 0);
        check(read(in, data, sizeof data) == 1 + 10 * round);
    }
    close(in);
    for (int round = 0; round < ROUNDS; round++) /* Nobody listens any more. */
        check(sendto(closed, data, 2 + 10 * round, 0, address, size) > 0);
    close(out);
    close(closed);
}

int main(int argc, char **argv) {
    char byte;
    rename_to("hot a");
    check(argc == 2 && read(0, &byte, 1) == 1);
    if (!strcmp(argv[1], "net")) {
        send_datagrams(AF_INET);
        send_datagrams(AF_INET6);
        return 0;
    }
    wake_each_other();
    make_processes();
    return 0;
}
