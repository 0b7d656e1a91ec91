"""pytrace.runtime.symbols: address spaces, JIT maps, frames of living processes."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import re
import struct
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pytrace.core.stack_formats import FIRST_IMAGE, REPORT_SIZE, ImageChange
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.machine import bpf, perf, procfs
from pytrace.runtime.machine.kernel_functions import Kallsyms
from pytrace.runtime.machine.procfs import Mapping
from pytrace.runtime.stacks import address_space
from pytrace.runtime.stacks.address_space import AddressSpace, MappingRecorder
from pytrace.runtime.stacks.compiled_code import PerfMap
from pytrace.runtime.stacks.images import SymbolFrame
from pytrace.runtime.stacks.symbolizer import Symbolizer
from tests.support.compile import compiled, tool
from tests.support.compiled_names import last

GONE = 1 << 22
"""A process id that no kernel gives out."""


def _row(start: int, end: int, path: str, inode: int = 1) -> Mapping:
    return Mapping(start, end, 0, 0, inode, path)


def test_mappings_as_they_are_told() -> None:
    space = AddressSpace(GONE)
    space.add(_row(0x1000, 0x3000, "/a"))
    space.add(_row(0x5000, 0x6000, "/b"))
    space.ended = True
    assert space.find(0x2FFF) == _row(0x1000, 0x3000, "/a")
    assert space.find(0x3000) is None
    space.add(_row(0x2000, 0x5800, "/c"))
    assert space.find(0x5000) == _row(0x2000, 0x5800, "/c")
    assert space.find(0x1800) is None, "a new mapping replaces what it overlaps"


def test_mappings_of_any_order_are_as_pages_of_memory_say(pytestconfig: pytest.Config) -> None:
    """Random mappings, unmappings and moves, beside a table with an entry for each page."""
    random = Random(pytestconfig.getoption("--random-seed"))
    space, page = AddressSpace(GONE), 0x1000
    pages: dict[int, tuple[str, int]] = {}
    space.exact = space.ended = True
    for step in range(1, 400):
        start, count = random.randrange(40), random.randrange(1, 12)
        area = range(start, start + count)
        what = random.choice(("map", "map", "unmap", "move"))
        if what == "map":
            space.add(_row(start * page, (start + count) * page, f"/{step}", inode=step), step)
            pages.update({number: (f"/{step}", number - start) for number in area})
        elif what == "unmap":
            space.unmap(start * page, (start + count) * page, step)
            for number in area:
                pages.pop(number, None)
        else:
            target = start + count + random.randrange(20)
            space.move(start * page, count * page, target * page, count * page, step)
            moved = {number + target - start: pages.pop(number) for number in area if number in pages}
            for number in range(target, target + count):
                pages.pop(number, None)
            pages.update(moved)
        for number in range(75):
            row = space.find(number * page)
            assert (None if row is None else row.path) == pages.get(number, (None, 0))[0], (step, number)
            if row is not None:
                assert (row.offset + number * page - row.start) // page == pages[number][1]
        starts = [row.start for row in space.mappings]
        assert starts == sorted(starts)


def test_maps_of_a_hostile_process_are_read_in_part_and_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first megabytes are left out; a process whose maps take long to read is read again later."""
    whole = procfs.read_maps(os.getpid())
    monkeypatch.setattr(procfs, "MOST_MAPS", len(whole) // 2)
    monkeypatch.setattr(procfs, "_LONGEST_ROW", 4096)
    monkeypatch.setattr(procfs, "_USUAL", 4096)
    monkeypatch.setattr(address_space, "_AT_ONCE", 4096)
    text = procfs.read_maps(os.getpid())
    assert len(whole) // 2 - 4096 < len(text) <= len(whole) // 2
    assert text.endswith(b"\n")
    space, real = AddressSpace(os.getpid(), text), procfs.read_maps
    texts: list[int] = []
    assert space.cut
    assert space._unread is None, "it is not kept as a text"

    def slow(pid: int) -> bytes:
        texts.append(pid)
        time.sleep(0.06)
        return real(pid)

    monkeypatch.setattr(procfs, "read_maps", slow)
    space._read_at = 0.0
    assert space.find(8) is None
    for _ in range(20):
        assert space.find(8) is None
        assert space.maps_text() == b""
        assert not space.reread(lambda: True)
    assert len(texts) == 1
    space._read_at -= 10  # ten seconds later
    assert space.find(8) is None
    assert len(texts) == 2


def test_mappings_that_are_gone_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that maps and unmaps code at ever new addresses costs no more for that."""
    monkeypatch.setattr(address_space, "KEPT_PAST", 100)
    space = AddressSpace(GONE)
    space.exact = space.ended = True
    for number in range(1, 1000):
        space.add(_row(number << 12, number + 1 << 12, "/x", inode=number), 2 * number)
        space.unmap(number << 12, number + 1 << 12, 2 * number + 1)
        assert space.past <= 100
    assert len(space._past) == len(space._past_starts) == space.past
    assert [row.path for row in space.find_within(999 << 12, 0, 1 << 60)] == ["/x"]
    assert space.find_within(1 << 12, 0, 1 << 60) == []


def test_exec_and_fork() -> None:
    space = AddressSpace(GONE)
    space.add(_row(0x1000, 0x3000, "/shell"))
    child = space.fork(GONE - 1)
    child.start_program()
    child.add(_row(0x8000, 0x9000, "/program"))
    child.ended = space.ended = True
    assert child.find(0x8000) == _row(0x8000, 0x9000, "/program")
    assert child.find(0x1000) == _row(0x1000, 0x3000, "/shell"), "samples from before execve"
    assert space.find(0x8000) is None


def test_perf_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    try:
        path.write_text("7f0000001000 20 LazyCompile:*run app.js:3\n0x7f0000002000 0x10 py::main:x.py\n")
        names = PerfMap(os.getpid())
        assert last(names, 0x7F000000101F) == ("LazyCompile:*run app.js:3", 0x1F)
        assert last(names, 0x7F0000002000) == ("py::main:x.py", 0)
        assert last(names, 0x7F0000001020) is None
        with path.open("a") as file:
            file.write("7f0000001000 20 recompiled\n7f0000005000 8 later\n")
        assert last(names, 0x7F0000005000) == ("later", 0), "read again when a look-up fails"
        assert last(names, 0x7F0000001000) == ("recompiled", 0)
    finally:
        path.unlink(missing_ok=True)


def test_functions_of_this_process() -> None:
    libc = ctypes.CDLL(None)
    address = ctypes.cast(libc.getpid, ctypes.c_void_p).value
    assert address is not None
    (frame,) = Symbolizer().user(os.getpid(), address + 2)
    assert frame.name in ("getpid", "__getpid")
    assert frame.offset == 2
    assert "libc" in frame.module


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program that says where its function is and waits."""
    text = """
    #include <stdio.h>
    namespace deep { __attribute__((noinline)) int place(int n) { return n + 1; } }
    int main() { printf("%p\\n", (void *)deep::place); fflush(stdout); return getchar() + deep::place(1); }
    """
    path = compiled(tmp_path, "waiting", text, "-g", "-O1", language="c++")
    child = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield child, path
    if child.returncode is None:
        child.communicate("\n")


def _address(child: subprocess.Popen[str]) -> int:
    assert child.stdout is not None
    return int(child.stdout.readline(), 16)


def test_demangled_or_not(waiting: tuple[subprocess.Popen[str], Path]) -> None:
    child, path = waiting
    address = _address(child)
    assert Symbolizer().user(child.pid, address) == [SymbolFrame("deep::place(int)", 0, str(path))]
    plain = Symbolizer(demangled=False).user(child.pid, address)
    assert [frame.name for frame in plain] == ["_ZN4deep5placeEi"]


def test_source_lines(waiting: tuple[subprocess.Popen[str], Path]) -> None:
    child, _ = waiting
    (frame,) = Symbolizer(lines=True).user(child.pid, _address(child))
    assert frame.file.endswith("waiting.cpp")
    assert frame.line == 3


def test_known_processes_are_remembered_after_their_end(waiting: tuple[subprocess.Popen[str], Path]) -> None:
    child, _ = waiting
    address = _address(child)
    symbols = Symbolizer()
    symbols.user(child.pid, 0)
    child.communicate("\n")
    assert symbols.user(child.pid, address)[0].name == "deep::place(int)"
    assert symbols.notices() == []


def test_unknown_processes_are_named_at_the_end(waiting: tuple[subprocess.Popen[str], Path]) -> None:
    child, _ = waiting
    address = _address(child)
    child.communicate("\n")
    symbols = Symbolizer()
    assert symbols.user(child.pid, address) == [SymbolFrame("")]
    (notice,) = symbols.notices()
    assert str(child.pid) in notice


def test_a_removed_binary_is_still_read(waiting: tuple[subprocess.Popen[str], Path]) -> None:
    child, path = waiting
    address = _address(child)
    path.unlink()
    if os.geteuid():
        pytest.skip("map_files are for root")
    assert Symbolizer().user(child.pid, address)[0].name == "deep::place(int)"


@pytest.mark.skipif(os.geteuid() != 0, reason="the files of a process by its root are for root")
@pytest.mark.parametrize("ahead", [True, False])
def test_binaries_of_a_container_are_opened_while_it_lasts(
    waiting: tuple[subprocess.Popen[str], Path], monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """Also without source lines."""
    child, path = waiting
    address = _address(child)
    monkeypatch.setattr(procfs, "root_prefix", lambda pid: f"/proc/{pid}/root")
    symbols = Symbolizer()
    list(symbols.prepare([(child.pid, address)] if ahead else []))
    symbols.user(child.pid, 0)
    child.communicate("\n")
    path.unlink()
    assert symbols.user(child.pid, address)[0].name == ("deep::place(int)" if ahead else "")


def test_a_replaced_binary_is_not_mistaken(waiting: tuple[subprocess.Popen[str], Path]) -> None:
    child, path = waiting
    address = _address(child)
    symbols = Symbolizer()
    symbols.user(child.pid, 0)
    child.communicate("\n")
    path.rename(path.with_suffix(".old"))
    compiled(path.parent, path.name, "int other(void) { return 1; } int main(void) { return other(); }\n")
    assert symbols.user(child.pid, address)[0].name == ""
    assert any(str(path) in notice for notice in symbols.notices())


def test_jit_code_without_a_file() -> None:
    rows = procfs.executable_mappings(procfs.read_maps(os.getpid()))
    assert rows
    import mmap

    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    after = procfs.executable_mappings(procfs.read_maps(os.getpid()))
    (made,) = [row for row in after if row not in rows]
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    try:
        path.write_text(f"{made.start:x} 40 jitted\n")
        (frame,) = Symbolizer().user(os.getpid(), made.start + 8)
        assert (frame.name, frame.offset) == ("jitted", 8)
    finally:
        path.unlink(missing_ok=True)
        code.close()


def test_new_libraries_are_noticed() -> None:
    symbols = Symbolizer()
    symbols.user(os.getpid(), 0)
    time.sleep(0.06)
    import _ctypes

    handle = _ctypes.dlopen("libstdc++.so.6", 1)
    library = ctypes.CDLL("libstdc++.so.6", handle=handle)
    address = ctypes.cast(library.__cxa_demangle, ctypes.c_void_p).value
    assert address is not None
    assert symbols.user(os.getpid(), address)[0].name == "__cxa_demangle"


@pytest.mark.parametrize("lines", [False, True])
def test_vdso(lines: bool) -> None:
    from pytrace.runtime.stacks.images import vdso_image

    image = vdso_image()
    assert image is not None
    row = next(r for r in procfs.executable_mappings(procfs.read_maps(os.getpid())) if r.path == "[vdso]")
    symbol = next(found for name in ("clock_gettime", "__kernel_clock_gettime") for found in image.functions(name))
    (frame,) = Symbolizer(lines=lines).user(os.getpid(), row.start + symbol.address + 1)
    assert (frame.module, frame.offset) == ("[vdso]", 1)
    assert "clock_gettime" in frame.name


def test_debug_information_of_a_binary_that_went_or_was_replaced(tmp_path: Path) -> None:
    path = compiled(tmp_path, "gone", "int main(void) { return 0; }\n", "-g")
    kept, removed, replaced = (Binary.open(str(path)) for _ in range(3))
    assert kept.debug is not None
    other = compiled(tmp_path, "other", "int other(void) { return 1; }\nint main(void) { return other(); }\n", "-g")
    path.unlink()
    assert removed.debug is None
    other.rename(path)
    assert replaced.debug is None
    assert Binary.open(str(path)).debug is not None


def test_library_stubs_are_named(tmp_path: Path) -> None:
    path = compiled(tmp_path, "stub", '#include <stdlib.h>\nint main(void) { return atoi("0"); }\n', "-O0")
    tool("strip", path)
    binary = Binary.open(str(path))
    dump = subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^0*([0-9a-f]+) <atoi@plt>:", dump, re.MULTILINE)
    assert found
    stub = binary.plt_entry(int(found[1], 16) + 5)
    assert stub is not None
    assert stub.name == "atoi@plt"


def test_return_addresses_belong_to_the_call(waiting: tuple[subprocess.Popen[str], Path]) -> None:
    child, path = waiting
    address = _address(child)
    symbol = Binary.open(str(path)).functions("_ZN4deep5placeEi")[0]
    behind = address + symbol.size
    symbols = Symbolizer()
    assert symbols.user(child.pid, behind, caller=True) == [SymbolFrame("deep::place(int)", symbol.size, str(path))]
    assert symbols.user(child.pid, behind)[0].name != "deep::place(int)"


@pytest.mark.parametrize("cache", ["NONE", "PER_PROGRAM", "PER_PID", "AUTO"])
def test_caching_policies_give_the_same_names(waiting: tuple[subprocess.Popen[str], Path], cache: str) -> None:
    child, _ = waiting
    address = _address(child)
    symbols = Symbolizer(cache=cache)
    for _ in range(2):
        assert symbols.user(child.pid, address + 1)[0].name == "deep::place(int)"
    child.communicate("\n")
    gone = symbols.user(child.pid, address + 1)[0].name
    assert gone == ("" if cache == "NONE" else "deep::place(int)"), "without a cache nothing is left of a process"


def test_kernel_lines_through_an_image_with_dwarf(tmp_path: Path) -> None:
    """An image that stands for the kernel: what counts is the distance of its `_stext` from the running one's."""
    text = "void _stext(void) {}\n\nint vfs_sample(int n)\n{\n    return n;\n}\nint main(void) { return 0; }\n"
    image = compiled(tmp_path, "vmlinux", text, "-g", "-O0", "-no-pie")
    binary = Binary.open(str(image))
    start, sample = binary.address_of("_stext"), binary.address_of("vfs_sample")
    assert start is not None
    assert sample is not None
    base = 0xFFFFFFFF81000000
    (tmp_path / "kallsyms").write_text(
        f"{base:016x} T _stext\n{base + sample - start:016x} T vfs_sample\n{base + 0x10000:016x} T _end\n"
    )
    symbols = Symbolizer(lines=True, vmlinux=str(image))
    symbols._kallsyms = Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "none"))
    (frame,) = symbols.kernel(base + sample - start + 1)
    assert (frame.name, frame.offset, frame.line) == ("vfs_sample", 1, 4)
    assert frame.file.endswith("vmlinux.c")


def test_an_image_of_the_kernel_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_text(
        "ffffffff81000000 T _stext\nffffffff81000100 T vfs_sample\nffffffff81000200 T _end\n"
    )
    symbols = Symbolizer(lines=True, vmlinux="/no/such/image")
    symbols._kallsyms = Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "none"))
    for _ in range(2):
        assert symbols.kernel(0xFFFFFFFF81000101) == [SymbolFrame("vfs_sample", 1)]
    assert symbols.kernel(0xFFFFFFFF00000000)[0].name == ""
    (notice,) = symbols.notices()
    assert "/no/such/image" in notice


def test_each_program_has_a_serial_of_its_own() -> None:
    space = AddressSpace(os.getpid())
    first = space.serial
    space.start_program()
    assert space.previous is not None
    assert space.previous.serial == first
    assert len({first, space.serial, AddressSpace(os.getpid()).serial, space.fork(os.getpid()).serial}) == 4


# ---------------------------------------------------------------------------------------------- records of the kernel


PARENT, CHILD = 1 << 28, (1 << 28) + 1
"""Numbers that no process of this machine has."""
MMAP2, FORK, EXIT = 10, 7, 4
Record = tuple[int, int, int, bytes]


def mapped(when: int, pid: int, start: int) -> Record:
    body = struct.pack("=IIQQQIIQQII", pid, pid, start, 0x1000, 0, 8, 1, 99, 0, 5, 2) + b"/bin/program\0"
    return when, MMAP2, 0, body


def forked(when: int, pid: int, parent: int) -> Record:
    return when, FORK, 0, struct.pack("=IIII", pid, parent, pid, parent)


def exited(when: int, pid: int) -> Record:
    return when, EXIT, 0, struct.pack("=IIII", pid, 1, pid, 1)


class Rings:
    """What the rings of two processors hold at each reading, in place of those of the kernel, and the time of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.held: list[list[Record]] = [[], []]
        self._read = 0

        def records(_ring: mmap.mmap) -> Iterator[Record]:
            at, self._read = self._read % 2, self._read + 1
            taken, self.held[at] = self.held[at], []
            yield from taken

        monkeypatch.setattr(address_space, "_records", records)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now)


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> Rings:
    return Rings(monkeypatch)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[MappingRecorder]:
    if os.geteuid():
        pytest.skip("the mappings of all processes are for root")
    first = perf.online_cpus()[0]
    monkeypatch.setattr(perf, "online_cpus", lambda: [first])
    found, other = MappingRecorder([]), MappingRecorder([])
    found._rings[first + 1] = other._rings.pop(first)
    yield found
    found.close()


def test_a_child_that_runs_before_its_fork_is_read(made: MappingRecorder, rings: Rings) -> None:
    """The first ring was read, then the process was forked there and ran and ended where the second one is read."""
    rings.now, rings.held = 10, [[mapped(5, PARENT, 0x1000)], []]
    made.drain()
    rings.now, rings.held = 20, [[], [mapped(22, CHILD, 0x8000), exited(23, CHILD)]]
    made.drain()
    assert CHILD not in made.spaces
    rings.now, rings.held = 30, [[forked(21, CHILD, PARENT)], []]
    made.drain()
    child = made.spaces[CHILD]
    assert child.ended, "else it would be kept for ever"
    assert [row.start for row in (child.find(0x1000), child.find(0x8000)) if row] == [0x1000, 0x8000]


def test_records_wait_once(made: MappingRecorder, rings: Rings) -> None:
    """In a time namespace our clock may be far behind that of the records."""
    rings.now, rings.held = 10, [[], [mapped(5000, PARENT, 0x1000)]]
    made.drain()
    rings.now = 20
    made.drain()
    assert PARENT in made.spaces


@pytest.mark.skipif(os.geteuid() != 0, reason="the mappings of all processes are for root")
def test_the_clock_of_records_is_ours() -> None:
    """No record is newer than the moment at which it is read."""
    made = MappingRecorder([])
    before = time.monotonic_ns()
    subprocess.run(["true"], check=True)
    times = [when for _, ring in made._rings.values() for when, *_ in address_space._records(ring)]
    made.close()
    assert before <= max(times) <= time.monotonic_ns()


@pytest.mark.skipif(os.geteuid() != 0, reason="the mappings of all processes are for root")
def test_at_the_end_a_process_that_is_gone_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps may have addresses of thousands of processes that were forgotten."""
    made = MappingRecorder([])
    drained: list[int] = []
    drain = made.drain
    monkeypatch.setattr(made, "drain", lambda: (drained.append(1), drain()))
    ended = subprocess.Popen(["true"])
    ended.wait()
    made.end()
    assert made.image(ended.pid) is not None, "what was recorded before the end is known"
    for table in (made.spaces, made._first, made._latest):
        del table[ended.pid]
    assert [made.image(ended.pid) for _ in range(5)] == [None] * 5
    assert len(drained) == 1
    made.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="the mappings of all processes are for root")
def test_a_cpu_that_came_online_is_recorded_again() -> None:
    made = MappingRecorder([])
    cpu = perf.online_cpus()[0]
    before = set(made.descriptors)
    (descriptor,) = made.renew(cpu)
    assert descriptor in made.descriptors
    assert len(made.descriptors) == len(before)
    assert made.renew(1 << 16) == []
    made.close()
    assert made.descriptors == []


# ---------------------------------------------------------------------------------------------- images


TRACED = FIRST_IMAGE - 2
"""A number that processes hardly get."""
COMM, SAMPLE, LOST, EXEC_MISC = 3, 9, 2, 1 << 13


def library(when: int, start: int, name: str, pid: int = TRACED) -> Record:
    """A library is mapped: two pages."""
    inode = 100 + ord(name)
    body = struct.pack("=IIQQQIIQQII", pid, pid, start, 0x2000, 0, 8, 1, inode, 0, 5, 2) + f"/{name}\0".encode()
    return when, MMAP2, 0, body


def executed(when: int, pid: int = TRACED) -> Record:
    return when, COMM, EXEC_MISC, struct.pack("=II", pid, pid) + b"program\0"


def image(when: int, change: ImageChange, number: int, *words: int, pid: int = TRACED) -> Record:
    """The report of a new image; *words* are when the call began, and what it did."""
    report = struct.pack("=QII5Q", change, number and FIRST_IMAGE + number, pid, *words, *[0] * (5 - len(words)))
    assert len(report) == REPORT_SIZE
    return when, SAMPLE, 0, struct.pack("=QI", when, REPORT_SIZE) + report


def unloaded(when: int, number: int, start: int) -> Record:
    return image(when, ImageChange.UNMAP, number, when - 1, start, 0x2000)


@pytest.fixture
def images(made: MappingRecorder, rings: Rings, monkeypatch: pytest.MonkeyPatch) -> MappingRecorder:
    monkeypatch.setattr(made, "_exact", True)
    made.attached()
    rings.now = 1000
    return made


def at(recorder: MappingRecorder, number: int, address: int) -> str:
    """The path of what is at an address in an image, or (0) with the number of the process; empty if it is unknown."""
    found = recorder.image(FIRST_IMAGE + number if number else TRACED)
    mapping = None if found is None else found.find(address)
    return "" if mapping is None else mapping.path


def test_what_was_mapped_at_one_place_in_turn(images: MappingRecorder, rings: Rings) -> None:
    rings.held = [[forked(1, TRACED, 7), library(10, 0x1000, "a"), library(11, 0x8000, "c"), unloaded(20, 1, 0x1000)],
                  [library(30, 0x1000, "b"), unloaded(40, 2, 0x1000), library(50, 0x1000, "a")]]  # fmt: skip
    images.drain()
    assert [at(images, number, 0x1800) for number in range(3)] == ["/a", "/b", "/a"]
    assert [at(images, number, 0x8800) for number in range(3)] == ["/c"] * 3
    assert at(images, 3, 0x1800) == "", "it is not known"


def test_a_part_is_unmapped_and_another_moved(images: MappingRecorder, rings: Rings) -> None:
    rings.held = [[
        forked(1, TRACED, 7), library(10, 0x1000, "a"), image(20, ImageChange.UNMAP, 1, 19, 0x2000, 0x1000),
        image(30, ImageChange.MOVE, 2, 29, 0x1000, 0x1000, 0x6000, 0x1000),
    ], []]  # fmt: skip
    images.drain()
    assert [at(images, 0, address) for address in (0x1800, 0x2800)] == ["/a", "/a"]
    assert [at(images, 1, address) for address in (0x1800, 0x2800)] == ["/a", ""]
    assert [at(images, 2, address) for address in (0x1800, 0x6800)] == ["", "/a"]


def test_code_is_mapped_over_code(images: MappingRecorder, rings: Rings) -> None:
    """The new mapping is there before the call returns, which nobody runs before."""
    rings.held = [[forked(1, TRACED, 7), library(10, 0x1000, "a"), library(25, 0x1000, "b"),
                   image(30, ImageChange.MAP, 1, 20, 0x1000, 0x2000, 0x1000)], []]  # fmt: skip
    images.drain()
    assert [at(images, number, 0x1800) for number in range(2)] == ["/a", "/b"]


def test_what_cannot_be_told_apart_has_no_name(images: MappingRecorder, rings: Rings) -> None:
    """While one thread unmaps, another one maps other code to the same place; or there was no room for an image."""
    rings.held = [[forked(1, TRACED, 7), library(10, 0x1000, "a"), library(25, 0x1000, "b"),
                   image(30, ImageChange.UNMAP, 1, 20, 0x1000, 0x2000)], []]  # fmt: skip
    images.drain()
    assert [at(images, number, 0x1800) for number in range(2)] == ["", "/b"]
    rings.held = [[image(40, ImageChange.UNMAP, 0, 39, 0x1000, 0x2000)], []]
    images.drain()
    assert at(images, 1, 0x1800) == ""
    assert images.without_room == 1


def test_programs_one_after_another(images: MappingRecorder, rings: Rings) -> None:
    """Until its image is reported a program's stacks are those of the one before, which is in execve."""
    rings.held = [[forked(1, TRACED, 7), library(10, 0x1000, "a"), executed(20), library(21, 0x1000, "b")], []]
    images.drain()
    assert at(images, 0, 0x1800) == "/a"
    rings.held = [[image(22, ImageChange.EXEC, 1, 22), executed(30), library(31, 0x1000, "c"), exited(50, TRACED)],
                  [image(32, ImageChange.EXEC, 2, 32)]]  # fmt: skip
    images.drain()
    assert [at(images, number, 0x1800) for number in range(3)] == ["/a", "/b", "/c"]


def short_lived(first: int, count: int) -> list[Record]:
    """Records of processes that are forked, execute a program with two libraries, and end."""
    records = []
    for pid in range(first, first + count):
        when = 10 * (pid - first)
        records += [forked(when, pid, TRACED), executed(when + 1, pid)]
        records += [library(when + 2, 0x1000 * pid + place, name, pid) for place, name in ((0, "a"), (1 << 40, "b"))]
        records += [image(when + 3, ImageChange.EXEC, pid - PARENT + 1, when + 1, pid=pid), exited(when + 4, pid)]
    return records


def test_memory_of_processes_that_ended_is_bounded(
    images: MappingRecorder, rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an hour has seen a million of them: the last ones are remembered, with what names need."""
    monkeypatch.setattr(address_space, "KEPT_ENDED", 200)
    monkeypatch.setattr(address_space, "_SWEPT", 20)
    rings.held = [[forked(1, TRACED, 7), library(2, 0x1000, "a")], []]
    rings.now = 100_000
    images.drain()

    def held_after(first: int) -> int:
        rings.held = [short_lived(first, 300), []]
        images.drain()
        assert len(images.spaces) <= 201
        assert len(images._images) <= 220
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        held = [held_after(PARENT + 300 * number) for number in range(4)]
    finally:
        tracemalloc.stop()
    assert (held[0] - begin) / 200 < 4000, "2 kB were measured; 5.2 kB with what only running processes need"
    assert held[3] - held[1] < 20_000
    assert [at(images, number, 0x1000 * (PARENT + number - 1)) for number in (1, 1200)] == ["", "/a"]


def test_what_had_gone_in_processes_that_ended_is_bounded(
    images: MappingRecorder, rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_space, "KEPT_PAST_ENDED", 30)
    for number in range(40):
        pid, when = TRACED + 1 + number, 1000 * number + 1
        rows = [forked(when, pid, TRACED), library(when + 1, 0x1000, "z", pid)]
        rows += [library(when + 2 + moment, 0x1000, "abcdefghij"[moment], pid) for moment in range(10)]
        rings.held = [[*rows, exited(when + 20, pid)], []]
        rings.now = when + 30
        images.drain()
    gone = [space.past for pid, space in images.spaces.items() if pid > TRACED and space.ended]
    assert gone
    assert sum(gone) <= 30


def test_processes_whose_ends_were_lost_are_forgotten(
    images: MappingRecorder, rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_space, "KEPT_ENDED", 20)
    monkeypatch.setattr(images, "_most_running", 50)
    rings.held = [[forked(pid, pid, 7) for pid in range(PARENT, PARENT + 500)], []]
    rings.now = PARENT + 1000
    monkeypatch.setattr(address_space, "_SWEPT", 50)
    images.drain()
    assert len(images.spaces) <= 20 + 52


def generated(when: int, pid: int = TRACED) -> Record:
    """Anonymous memory with code is mapped."""
    body = struct.pack("=IIQQQIIQQII", pid, pid, 0x9000, 0x2000, 0, 0, 0, 0, 0, 5, 2) + b"//anon\0"
    return when, MMAP2, 0, body


def test_names_of_compiled_code_are_kept_where_there_is_such_code(images: MappingRecorder, rings: Rings) -> None:
    rings.held = [[forked(1, TRACED, 7), library(10, 0x1000, "a"), executed(20), library(21, 0x1000, "b")], []]
    images.drain()
    first, program = images.image(TRACED), images.spaces[TRACED]
    assert first is not None
    assert (first.space.ended, first.space.perf_map) == (True, None)
    assert program.perf_map is None, "a file is looked for at the first code without one"
    rings.held = [[image(22, ImageChange.EXEC, 1, 22), generated(30), forked(40, CHILD, TRACED)], []]
    images.drain()
    assert program.perf_map is not None
    assert images.spaces[CHILD].perf_map is not None, "a child has the code of its parent"
    rings.held = [[exited(50, TRACED)], []]
    images.drain()
    assert program.ended
    assert program.perf_map is not None
    begun = [forked(60, TRACED, 7), library(61, 0x1000, "b"), image(62, ImageChange.EXEC, 2, 62), generated(63)]
    rings.held = [begun, []]
    images.drain()
    assert images.spaces[TRACED].perf_map is not None, "the record of execve was lost"


def test_a_number_that_is_given_again(images: MappingRecorder, rings: Rings) -> None:
    rings.held = [[forked(1, TRACED, 7), library(10, 0x1000, "a"), library(11, 0x8000, "a"), exited(20, TRACED),
                   forked(30, TRACED, 7), library(40, 0x1000, "b")], []]  # fmt: skip
    images.drain()
    assert at(images, 0, 0x1800) == "", "it may be either"
    assert at(images, 0, 0x8800) == "/a"


def test_after_a_loss_processes_are_looked_at(
    images: MappingRecorder, rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not reported is found in the map of images, which programs keep; before that it is not known."""
    rings.held = [[forked(1, TRACED, 7), library(10, 0x1000, "a"), (20, LOST, 0, struct.pack("=QQ", 0, 5))], []]
    images.drain()
    assert images.lost == 5
    keys = {struct.pack("=I", 77): struct.pack("=II", FIRST_IMAGE + 9, TRACED)}
    monkeypatch.setattr(bpf, "map_next_key", lambda _map, key, _size: next(iter(keys)) if key is None else None)
    monkeypatch.setattr(bpf, "map_lookup", lambda _map, key, _size: keys[key])
    monkeypatch.setattr(procfs, "read_maps", lambda _pid: b"1000-3000 r-xp 00000000 08:01 201 /b\n")
    assert at(images, 9, 0x1800) == "/b"
    assert at(images, 8, 0x1800) == "", "it has begun and ended between the loss and the look"
    assert at(images, 0, 0x1800) == "/a"
