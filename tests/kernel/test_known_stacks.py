"""Stacks that are recognised are those that are walked (pytrace.codegen.walkers.known_stacks)."""

from __future__ import annotations

import re
import shlex
import struct
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pytrace
from pytrace.codegen.walkers import known_stacks
from pytrace.codegen.walkers.known_stacks import KnownUserStacks
from pytrace.runtime.machine import bpf, perf
from pytrace.runtime.stacks import images
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


def _recognised(record: int = known_stacks.RECORD, sets: int = known_stacks.SETS) -> int:
    """How many stacks the programs of this process know, of the kernel or by other sizes of their records."""
    known = 0
    cpus = len(perf.possible_cpus())
    for path in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # the directory's own
            fields = dict(re.findall(r"^(\w+):\t(\d+)$", path.read_text(), re.MULTILINE))
            size = known_stacks.WAYS * record
            if fields.get("value_size") == str(size):
                for index in range(sets):
                    value = bpf.map_lookup(int(path.name), struct.pack("=I", index), size * cpus)
                    assert value is not None
                    known += sum(value[at : at + 8] != bytes(8) for at in range(0, len(value), record))
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


CALLS = """
import ctypes, functools, json, os, random, signal, subprocess, sys, threading
ctypes.CDLL(None).prctl(15, b"known-stacks")
draw = random.Random(3)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def call(): os.getppid()
def sort(): ctypes.CDLL(None).qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare(lambda *_: (call(), 1)[1]))
def parse(): json.loads('{"a": [1]}', object_hook=lambda _: call())
def order(): sorted([2, 1], key=lambda _: call() or 0)
def signalled(): ctypes.CDLL(None).kill(os.getpid(), signal.SIGUSR1)
def deeper(depth): deeper(depth - 1) if depth else call()
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: call())
ctypes.CDLL(None).signal(signal.SIGUSR1, handler)
ways = [call, sort, parse, order, lambda: deeper(draw.randrange(25)),
    lambda: functools.reduce(lambda *_: call(), [1, 2])]
def work(count):
    for _ in range(count):
        draw.choice(ways)()
def threads():
    for size in (0, 1 << 17, 1 << 20):
        threading.stack_size(size)
        workers = [threading.Thread(target=work, args=(300,)) for _ in range(2)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
if len(sys.argv) == 1:
    for _ in range(200): signalled()
    work(2000)
    threads()
    if os.fork() == 0:
        work(300)
        os._exit(0)
    os.wait()
    subprocess.run([sys.executable, __file__, "again"], check=True)
else:
    work(1000)
"""
STACKS = {"native": ("python_frames = false", "ustack(raw, 60)"), "mixed": ("python_frames = true", "ustack(60)")}


@pytest.mark.parametrize("kind", STACKS)
def test_user_stacks_of_all_kinds(no_leaks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Two probes see the same calls; the stacks of the one are walked each time."""
    need("bpf_loop")
    program = tmp_path / "program.py"
    program.write_text(CALLS)
    recognise = KnownUserStacks.walk

    def walk(self: KnownUserStacks, *arguments: Any) -> None:
        if self.program.unit.kind.name == "rawtracepoint":
            recognise(self, *arguments)
        else:
            arguments[-1]()

    monkeypatch.setattr(KnownUserStacks, "walk", walk)
    monkeypatch.setattr(images, "NAMING", patience(300))  # of both maps, however slow the machine is
    config, stack = STACKS[kind]
    script = (
        f"config = {{ stack_unwinding = auto; {config} }} "
        f'tracepoint:syscalls:sys_enter_getppid /comm == "known-stacks"/ {{ @walked[{stack}] = count(); }} '
        f'rawtracepoint:sys_enter /comm == "known-stacks" && args.id == 110/ {{ @known[{stack}] = count(); }}'
    )
    with pytrace.open(script, command=[sys.executable, str(program)]) as trace:
        list(trace)
        known = _recognised(known_stacks.USER_RECORD, known_stacks.USER_SETS)
        walked, recognised = Counter[tuple[tuple[str, int], ...]](), Counter[tuple[tuple[str, int], ...]]()
        for name, found in (("@walked", walked), ("@known", recognised)):
            # Equal stacks of two processes are two keys.
            for key, number in trace.maps[name].to_dict().items():
                found[tuple((frame.function, frame.address) for frame in key.frames)] += number
    assert known > 8
    assert len(walked) > 8
    assert walked.total() > 6000
    # Tables may come between the two probes of one call, and programs at tracepoints are left out within others.
    differing = (walked - recognised) + (recognised - walked)
    assert differing.total() <= 20, differing
