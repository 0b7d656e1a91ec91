"""Kernel stacks that are recognised are those that the kernel walks (pytrace.codegen.walkers.known_stacks)."""

from __future__ import annotations

import re
import shlex
import struct
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import pytrace
from pytrace.codegen.walkers import known_stacks
from pytrace.runtime.machine import bpf, perf
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.server import Server

WAITS = """
import os, select, socket, tempfile, threading, time
lock = threading.Lock()
def pipes():
    into, out = os.pipe()
    def end():
        for _ in range(400):
            os.read(into, 1)
    reader = threading.Thread(target=end)
    reader.start()
    for _ in range(400):
        os.write(out, b'x')
        time.sleep(0)
    reader.join()
def locks():
    for _ in range(200):
        with lock:
            time.sleep(1e-6)
def sockets():
    one, other = socket.socketpair()
    for _ in range(200):
        select.select([one], [], [], 1e-6)
        other.send(b'x')
        one.recv(1)
def files():
    with tempfile.TemporaryFile() as file:
        for _ in range(20):
            file.write(b'x' * 4096)
            os.fsync(file.fileno())
def children():
    for _ in range(20):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
threads = [threading.Thread(target=body) for body in (pipes, pipes, locks, locks, sockets, files)]
for thread in threads: thread.start()
for thread in threads: thread.join()
children()
"""


def _since(text: str, function: str) -> str:
    """A stack from *function* on: what is above differs from one kind of probe to another."""
    return text[text.index(function) :] if function in text else text


def _recognised() -> int:
    """How many stacks the programs of this process know."""
    known = 0
    cpus = len(perf.possible_cpus())
    for path in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # the directory's own
            fields = dict(re.findall(r"^(\w+):\t(\d+)$", path.read_text(), re.MULTILINE))
            size = known_stacks.WAYS * known_stacks.RECORD
            if fields.get("value_size") == str(size):
                for index in range(known_stacks.SETS):
                    value = bpf.map_lookup(int(path.name), struct.pack("=I", index), size * cpus)
                    assert value is not None
                    known += sum(value[at : at + 8] != bytes(8) for at in range(0, len(value), known_stacks.RECORD))
    return known


BESIDE = {
    "alone": ("bpf_loop", ""),
    "with put aside addresses": ("kprobe", "kretprobe:vfs_read, kretprobe:ksys_read /pid == cpid/ { @n = count(); } "),
    "with trampolines": ("fentry", "fexit:vfs_read /pid == cpid/ { @n = count(); } "),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_waits_of_all_kinds(no_leaks: None, beside: str) -> None:
    """Two probes see the same switches; the stacks of the one are walked each time."""
    feature, other = BESIDE[beside]
    need("bpf_loop", feature)
    script = other + (
        "tracepoint:sched:sched_switch /pid == cpid/ { @walked[kstack(30)] = count(); } "
        "rawtracepoint:sched_switch /pid == cpid/ { @known[kstack(30)] = count(); }"
    )
    with pytrace.open(script, command=[sys.executable, "-c", WAITS]) as trace:
        list(trace)
        known = _recognised()
        assert not other or trace.maps["@n"].value > 0
        found = []
        for name in ("@walked", "@known"):
            stacks = Counter[str]()
            for stack, number in trace.maps[name].to_dict().items():
                stacks[_since(str(stack), "__schedule")] += number
            found.append(stacks)
    walked, recognised = found
    assert known >= 5
    assert len(walked) >= 8
    assert recognised == walked, recognised - walked


NAMES = """
import ctypes
for number in range(1000000, 1000042):
    for _ in range(9):
        ctypes.CDLL(None).prctl(15, b"%d" % number)
"""
"""Gives itself names: few others trace that, and who traces the same changes what is on the stack."""
PROBES = {
    "rawtracepoint": 'rawtracepoint:task_rename /pid == cpid && strncmp("10000", str(args.comm), 5) == 0/',
    "fentry": "fentry:__set_task_comm /pid == cpid/",
    "fexit": "fexit:__set_task_comm /pid == cpid/",
}
BODIES = {
    "keys": "".join(f"@l{n}[$n, kstack(raw, {n})] = count(); " for n in (1, 2, 3, 31, 32, 33, 64, 127)),
    "default": "@[$n, kstack] = count(); @long[len(kstack)] = count();",
    "variable": "$s = kstack(raw, 12); @v[$n] = $s; @[$n, $s] = count(); if ($s == kstack(raw, 12)) { @same++; }",
    "loop": "for ($i : 0..2) { @[$i, $n, len(kstack(raw, 14))] = count(); }",
    "event": 'printf("%s %s|\\n", $n, kstack(raw, 20));',
}


@pytest.mark.parametrize("kind", PROBES)
def test_places_of_all_kinds(server: Server, kind: str) -> None:
    """What is printed is what kernels print that walk each stack."""
    need("bpf_loop", *(() if kind == "rawtracepoint" else ("fentry",)))
    command = shlex.join([sys.executable, "-c", NAMES])
    name_of = "str(args.comm)" if kind == "rawtracepoint" else "str(args.buf)"
    for name, body in BODIES.items():
        script = f"{PROBES[kind]} {{ $n = {name_of}; {body} }}"
        for _ in range(3):
            printed = [
                server.run(("-q", "--no-cache", *words, "-e", script, "-c", command), timeout=patience(60))
                for words in ((), ("--no-feature", "current_task_btf"))
            ]
            if printed[0].stdout == printed[1].stdout:
                break  # else somebody else may have begun or ended to trace the same
        assert [result.status for result in printed] == [0, 0], printed
        assert "1000041" in printed[0].stdout, name
        assert printed[0].stdout == printed[1].stdout, name
