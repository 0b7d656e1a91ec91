#!/bin/sh
# served.sh PID...: sends SIGUSR1 to the first process, and returns when each of them has no signal left to handle and waits for
# the next one (rt_sigtimedwait is system call 128 on x86-64 and 137 on machines with the common table).
kill -USR1 "$1" || exit
for pid; do
    until grep -q '^ShdPnd:.*0000$' "/proc/$pid/status" && grep -qE '^(128|137) ' "/proc/$pid/syscall"; do
        # A process that has ended waits for nothing any more.
        grep -q '^State:.*[ZX]' "/proc/$pid/status" 2>/dev/null && exit 1
        [ -d "/proc/$pid" ] || exit
        sleep 0.01
    done
done
