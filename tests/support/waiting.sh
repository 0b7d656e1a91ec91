#!/bin/sh
# waiting.sh: returns when the child `waiter` of $PYTRACE_PID has handled the signals it got and waits for the next one
# (rt_sigtimedwait is system call 128 on x86-64 and 137 on machines with the common table).
until pid=$(pgrep -P "$PYTRACE_PID" waiter) && grep -q '^ShdPnd:.*0000$' "/proc/$pid/status" && grep -qE '^(128|137) ' "/proc/$pid/syscall"; do
    sleep 0.01
done
