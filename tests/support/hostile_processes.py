"""Processes that lie, of another user: names, mappings, roots and files that change, made from a seed.

:func:`attempt` asks about an honest process and hostile ones in some order, while these change, and is its own oracle:
the honest one has its functions, memory and time are bounded, and nothing but files of the attempt was opened, written
or run.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from unittest.mock import patch

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.user_binary import Libraries
from pytrace.runtime.machine import foreign_files, procfs, selected_processes
from pytrace.runtime.stacks import python_processes, symbolizer
from pytrace.runtime.stacks.symbolizer import Symbolizer
from tests.support import hostile_files
from tests.support.hostile_files import MOST_MEMORY, STRANGERS, addresses, honest

_NAMES = (
    b"a\nb", b"x (deleted)", b"jit-1.dump", b"jit-77.dump", b"perf-1.map", b"[vdso]", b"[anon: x]", b"memfd:x",
    b"libpython3.11.so", b"python3", b"\xff\xfe", b"$(id)", b"a;b", b"..\\012..", b"\r\x0b\x0c", b"-x", b"*", b"\\",
    b"ld-musl-x86_64.so.1", b"0" * 255, b"\n" * 200, b"00400000-00452000 r-xp 00000000 00:00 5 ", b"libc.so.6", b"{}",
)  # fmt: skip
"""Names of files that it maps."""
_COMMS = (b"a\nb", b") S 1 1", b"R) 0 (", b"\x1b[2J", b"", b"swapper/0", b"\xff" * 15, b"Uid:\t0", b"x;reboot")
_TARGETS = ("/etc/shadow", "/proc/kmsg", "/dev/zero", "../../../../etc/passwd", "/proc/self/mem", "/", ".", "pipe",
            "/sys/kernel/tracing/trace_pipe", "/proc/1/root/etc/passwd", "loop", "/proc/self/fd/0")  # fmt: skip
_PAGE = mmap.PAGESIZE


# ---------------------------------------------------------------------------------------------- in the processes


def _honest_process(folder: Path) -> None:
    with (folder / "honest").open("rb") as file:
        _keep(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))


_kept: list[object] = []


def _keep(mapping: object) -> None:
    _kept.append(mapping)


def _map(path: bytes, random: Random) -> None:
    with suppress(OSError, ValueError), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = random.randrange(max(1, size // _PAGE)) * _PAGE if random.random() < 0.3 else 0
        length = max(1, min(size - start, random.choice((1, _PAGE, size or 1))))
        _keep(mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC, offset=start))


def _contents(random: Random) -> bytes:
    kind = random.choice((*hostile_files.KINDS, "honest", "map", "dump", "script"))
    if kind == "honest":
        return honest()
    if kind == "map":
        return hostile_files._map(random)
    if kind == "dump":
        return hostile_files._dump(random)
    if kind == "script":
        return b"#!" + random.choice((b"./a.sh", b"/bin/sh", b"x" * 300, b"", b"\n", b"/proc/self/exe")) + b"\n"
    return hostile_files.KINDS[kind](random)


def _file(random: Random, folder: bytes) -> bytes:
    path = folder + b"/" + random.choice(_NAMES)
    if random.random() < 0.3:
        with suppress(OSError):
            os.unlink(path)
        with suppress(OSError):
            os.symlink(random.choice(_TARGETS).encode(), path)
    elif not os.path.exists(path):
        with suppress(OSError), open(path, "wb") as file:
            file.write(_contents(random))
    return path


def _rename_process(random: Random, _folder: bytes) -> None:
    ctypes.CDLL(None).prctl(15, random.choice(_COMMS), 0, 0, 0)


def _map_files(random: Random, folder: bytes) -> None:
    for _ in range(random.randrange(1, 6)):
        _map(_file(random, folder), random)


def _map_memory(random: Random, folder: bytes) -> None:
    for _ in range(random.choice((1, 3, 500))):
        _keep(mmap.mmap(-1, _PAGE * random.randrange(1, 4), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                        mmap.PROT_READ | mmap.PROT_EXEC | mmap.PROT_WRITE))  # fmt: skip
    with suppress(OSError):
        memory = os.memfd_create(random.choice(_NAMES).replace(b"\0", b"").decode("latin-1")[:200])
        os.write(memory, _contents(random))
        _keep(mmap.mmap(memory, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))


def _unmap(random: Random, _folder: bytes) -> None:
    random.shuffle(_kept)
    del _kept[: random.randrange(len(_kept) + 1)]


def _damage_files(random: Random, folder: bytes) -> None:
    """What is mapped is truncated, removed, or replaced by something else."""
    for name in os.listdir(folder):
        path, what = folder + b"/" + name, random.random()
        with suppress(OSError):
            if what < 0.2:
                os.truncate(path, random.choice((0, 100, 4096, 1 << 32)))
            elif what < 0.4:
                os.unlink(path)
            elif what < 0.6:
                os.rename(path, folder + b"/" + random.choice(_NAMES))


def _write_names(random: Random, _folder: bytes) -> None:
    """Perf maps under its own number, in its own /tmp."""
    with suppress(OSError):
        os.mkdir("/tmp")
    path = f"/tmp/perf-{random.choice((os.getpid(), 1))}.map"
    with suppress(OSError):
        if random.random() < 0.3:
            os.symlink(random.choice(_TARGETS), path)
        else:
            Path(path).write_bytes(hostile_files._map(random))


def _fork(random: Random, _folder: bytes) -> None:
    if not os.fork():
        signal.alarm(10)
        os.close(0)
        if random.random() < 0.5:
            time.sleep(random.choice((0, 0.01, 5)))
        os._exit(0)


CHANGES: tuple[Callable[[Random, bytes], None], ...] = (
    _rename_process, _map_files, _map_files, _map_memory, _unmap, _damage_files, _write_names, _fork,
)  # fmt: skip
"""What a hostile process does when it is asked."""


def _hostile_process(random: Random, folder: Path) -> Callable[[], None]:
    """Take a root of its own, and what it has from the beginning. Returns what it does each time it is asked."""
    place = os.fsencode(folder)
    if random.random() < 0.6 and not os.geteuid():
        os.chroot(folder)
        os.chdir("/")
        place = b"/"
        with suppress(OSError):
            os.mkdir("/etc")
            os.symlink(random.choice(_TARGETS), "/etc/ld.so.cache")
    else:
        os.chdir(folder)
    if not os.geteuid():
        os.chown(place, STRANGERS[1], 0)
        os.setresgid(STRANGERS[1], STRANGERS[1], STRANGERS[1])
        os.setresuid(STRANGERS[1], STRANGERS[1], STRANGERS[1])
    for change in (_map_files, random.choice(CHANGES)):
        change(random, place)
    return lambda: random.choice(CHANGES)(random, place)


class _Child:
    """A process that does what it is asked, or waits."""

    def __init__(self, begin: Callable[[], Callable[[], None] | None]) -> None:
        ask, self._asked = os.pipe()
        self._answered, answer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.dup2(ask, 0)
                os.dup2(answer, 1)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os.closerange(3, 1 << 10)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                signal.alarm(60)
                change = begin()
                os.write(1, b"x")
                while os.read(0, 1):
                    if change is not None:
                        # Nothing that it does to itself may keep it from answering.
                        with suppress(Exception):
                            change()
                    os.write(1, b"x")
            finally:
                os._exit(0)
        os.close(ask)
        os.close(answer)
        self._wait()

    def _wait(self) -> None:
        os.read(self._answered, 1)

    def change(self) -> None:
        """Have it change something."""
        with suppress(OSError):
            os.write(self._asked, b"x")
            self._wait()

    def end(self) -> None:
        """End it; its children end by themselves."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for descriptor in (self._asked, self._answered):
            with suppress(OSError):
                os.close(descriptor)


# ---------------------------------------------------------------------------------------------- questions


_ROW = re.compile(rb"(?m)^([0-9a-f]+)-([0-9a-f]+) ..x. (\S+) \S+ (\d+) *(.*)$")


def _rows(pid: int) -> list[tuple[int, int, int, bytes]]:
    """Start, end, offset and path of what it may execute."""
    try:
        text = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return []
    return [(int(row[1], 16), int(row[2], 16), int(row[3], 16), row[5]) for row in _ROW.finditer(text)]


@contextmanager
def _children(random: Random, folder: Path) -> Iterator[tuple[_Child, list[_Child]]]:
    children: list[_Child] = []
    try:
        children.append(_Child(lambda: _honest_process(folder)))
        for number in range(random.randrange(1, 3)):
            own, place = Random(random.random()), folder / f"own{number}"
            place.mkdir()
            children.append(_Child(lambda own=own, place=place: _hostile_process(own, place)))  # type: ignore[misc]
        yield children[0], children[1:]
    finally:
        for child in children:
            child.end()


def _frames(symbols: Symbolizer, pid: int, address: int) -> list[tuple[str, int]]:
    return [(frame.name, frame.offset) for frame in symbols.user(pid, address)]


def _other_questions(random: Random, pid: int) -> None:
    """All else that a run asks of ``/proc`` about a process."""
    questions: tuple[Callable[[], object], ...] = (
        lambda: procfs.executable(pid), lambda: procfs.mapped_files(pid), lambda: procfs.children(pid),
        lambda: procfs.has_executed(pid), lambda: procfs.ancestors(pid), lambda: procfs.leader(pid),
        lambda: symbolizer.hidden(pid), lambda: procfs.root_prefix(pid), lambda: procfs.live_thread(pid),
        lambda: procfs.waited_for_children(pid), lambda: selected_processes.container_processes("ab" * 8),
        lambda: python_processes.runs_python(pid),
        lambda: Libraries(os.environ).find(random.choice(("", "*", "libc", "/x*y", "/dev/shm/a*b")), pid),
        lambda: procfs.resolved(f"/proc/{pid}/root/{os.fsdecode(random.choice(_NAMES))}"),
    )  # fmt: skip
    with suppress(TraceError):
        random.choice(questions)()


MOST_SECONDS = 20.0
"""Seconds of processor time of this process."""


def attempt(seed: int) -> None:
    """Ask about an honest process and one or two hostile ones.

    Raises:
        AssertionError: the lies changed something, or took too much.
        HarmError: something else was opened or run.
    """
    random = Random(seed)
    honest()
    expected = {
        address - 0x400000: [(frame.name, frame.offset) for frame in frames][-1]
        for address, frames in zip(addresses(), hostile_files.truth(lines=False), strict=True)
        if frames[-1].name
    }
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="pytrace-hostile-", dir=place) as name, patch.dict(
        os.environ, {"XDG_CACHE_HOME": f"{name}/cache"}
    ):
        os.environ.pop("DEBUGINFOD_URLS", None)
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "cache").mkdir(mode=0o700)
        (folder / "honest").write_bytes(honest())
        with _children(random, folder) as (true, liars):
            memory, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            symbols = Symbolizer(lines=random.random() < 0.3, cache=random.choice(("PER_PID", "NONE")))
            roots = tuple(f"/proc/{child.pid}/" for child in liars)
            try:
                # It may map what everybody may read, and has what this process had mapped when it was forked.
                shared = f"{place or '/tmp'}/pytrace-hostile-", "/tmp/perf-", "/etc/passwd"
                with hostile_files._watch(name, *shared, *roots):
                    _ask(random, symbols, true, liars, expected)
            finally:
                symbols.close()
                foreign_files.close()
            more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory << 10
            assert more < MOST_MEMORY, f"{more >> 20} MiB"
            assert time.process_time() - began < MOST_SECONDS, f"{time.process_time() - began:.1f} s"
        for text in symbols.notices():
            assert len(text) < 4 * 4096, text
            assert not re.search(r"\b[A-Z]\w*Error: |with status", text), text


def _ask(
    random: Random, symbols: Symbolizer, true: _Child, liars: list[_Child], expected: dict[int, tuple[str, int]]
) -> None:
    rows = [row for row in _rows(true.pid) if row[3].endswith(b"/honest")]
    (base,) = {row[0] - row[2] for row in rows}
    for _ in range(random.choice((20, 60))):
        liar = random.choice(liars)
        if random.random() < 0.3:
            liar.change()
        mapped = _rows(liar.pid) or [(0x400000, 0x401000, 0, b"")]
        start, end, _, _ = random.choice(mapped)
        address = random.choice((start, random.randrange(start, end), end, 8, (1 << 64) - 8))
        assert _frames(symbols, liar.pid, address)
        symbols.trampoline(liar.pid, address)
        symbols.user_place(liar.pid, address)
        if random.random() < 0.3:
            _other_questions(random, liar.pid)
        at = random.choice([*expected])
        found = _frames(symbols, true.pid, base + at)
        assert found[-1] == expected[at], (at, found, symbols.notices())


def main() -> None:
    """``python -m tests.support.hostile_processes FIRST LAST``."""
    with hostile_files.low_limits():
        for seed in range(int(sys.argv[1]), int(sys.argv[2])):
            try:
                attempt(seed)
            except BaseException as error:
                raise AssertionError(f"hostile_processes.attempt({seed})") from error


if __name__ == "__main__":
    main()
