"""loop.py RESULT CHUNKS CALLS DEPTH: CHUNKS times CALLS calls of getsid(0), DEPTH functions of Python below the module.

Writes the processor time of each chunk in nanoseconds to RESULT, a number a line, as loop.c does. With 0 as CHUNKS it
computes until it is killed.
"""

import os
import sys
import time


def chunk(calls: int, chunks: int) -> list[int]:
    took = []
    for _ in range(chunks):
        start = time.thread_time_ns()
        for _ in range(calls):
            os.getsid(0)
        took.append(time.thread_time_ns() - start)
    return took


def down(depth: int, calls: int, chunks: int) -> list[int]:
    if depth:
        return down(depth - 1, calls, chunks)
    while not chunks:
        pass
    return chunk(calls, chunks)


os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
times = down(int(sys.argv[4]) - 2, int(sys.argv[3]), int(sys.argv[2]))
with open(sys.argv[1], "w") as file:
    file.writelines(f"{number}\n" for number in times)
