"""Images of programs: where they are mapped, lines."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.runtime.binaries.elf_file import ElfFile, Segment, parse_notes
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.machine.kernel_functions import Kallsyms
from pytrace.runtime.machine.procfs import Mapping
from pytrace.runtime.session.signals import Signals
from pytrace.runtime.stacks import image_places, images
from pytrace.runtime.stacks.image_places import Detail, ImagePlace, KernelImages, MetBinaries, detail, replaced
from pytrace.runtime.stacks.images import Images, LineReading
from pytrace.runtime.stacks.symbolizer import Symbolizer
from tests.support import small_program
from tests.support.compile import compiled, tool
from tests.support.end_requests import asked

# ---------------------------------------------------------------------------------------------- image places
# Where addresses lie in what was linked.


TEXT = """
#include <stdio.h>
int place(int n) { return n; }
int main(void) { printf("%p\\n", (void *)place); fflush(stdout); return getchar(); }
"""


@pytest.mark.parametrize("options", [("-pie", "-fPIE"), ("-no-pie", "-fno-pie")])
def test_a_function_is_at_one_place_in_every_process(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = compiled(tmp_path, "prog", TEXT, "-O0", "-Wl,--build-id", *options)
    binary = Binary.open(str(path))
    linked, build_id = binary.address_of("place"), ElfFile.open(str(path)).build_id
    assert linked is not None
    assert len(build_id) == 40
    symbols = Symbolizer()
    for _ in range(2):
        child = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        address = int(child.stdout.readline(), 16)
        assert symbols.user_place(child.pid, address + 4) == ImagePlace(build_id, linked + 4)
        assert symbols.user(child.pid, address + 4)[-1].name == "place"
        child.communicate("\n")


def test_a_binary_without_a_build_id(tmp_path: Path) -> None:
    path = compiled(tmp_path, "prog", TEXT, "-O0", "-Wl,--build-id=none")
    child = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    address = int(child.stdout.readline(), 16)
    linked = Binary.open(str(path)).address_of("place")
    assert linked is not None
    assert Symbolizer().user_place(child.pid, address) == ImagePlace("", linked)
    child.communicate("\n")


def test_unknown_addresses_are_themselves() -> None:
    symbols = Symbolizer()
    assert symbols.user_place(os.getpid(), 0x10) == ImagePlace("", 0x10)
    assert symbols.user_place(1 << 22, 0x1234) == ImagePlace("", 0x1234)
    assert symbols.kernel_place(0x10) == ImagePlace("", 0x10)


def test_the_vdso() -> None:
    libc = ctypes.CDLL(None)
    libc.getauxval.restype = ctypes.c_ulong
    start = libc.getauxval(33)  # AT_SYSINFO_EHDR
    found = Symbolizer().user_place(os.getpid(), start + 0x800)
    assert found.address == 0x800
    assert found.build_id


def _kernel(tmp_path: Path, text: str, modules: str = "") -> Kallsyms:
    (tmp_path / "kallsyms").write_text(text)
    (tmp_path / "modules").write_text(modules)
    return Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "modules"))


def test_the_kernel_wherever_it_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(range(20))
    monkeypatch.setattr(image_places, "_build_id_of_notes", lambda _path: parse_notes(notes)[0][2].hex())
    monkeypatch.setattr(image_places, "_KERNEL_LINKED", {os.uname().machine: 0xFFFFFFFF81000000})
    lines = "{0:016x} T _text\n{1:016x} T work\n{2:016x} T _end\n"
    places = set()
    for moved in (0, 0x2E000000):
        base = 0xFFFFFFFF81000000 + moved
        kallsyms = _kernel(tmp_path, lines.format(base, base + 0x500, base + 0x900))
        places.add(KernelImages().place(kallsyms, base + 0x504))
    assert places == {ImagePlace(bytes(range(20)).hex(), 0xFFFFFFFF81000504)}


def test_modules_and_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = {"/sys/module/ext/notes/.note.gnu.build-id": "ab"}
    monkeypatch.setattr(image_places, "_build_id_of_notes", lambda path: notes.get(path, ""))
    base = 0xFFFFFFFFC0000000
    text = (
        f"{0xFFFFFFFF81000000:016x} T _text\n{base + 0x20:016x} t inside\t[ext]\n"
        f"{base + 0x90000:016x} t bpf_prog_1\t[bpf]\n"
    )
    kallsyms = _kernel(tmp_path, text, f"ext 4096 1 - Live 0x{base:016x}\n")
    images = KernelImages()
    assert images.place(kallsyms, base + 0x24) == ImagePlace("ab", 0x24)
    assert images.place(kallsyms, base + 0x90010).address == 0


def test_notes_of_what_is_not_there(tmp_path: Path) -> None:
    assert image_places._build_id_of_notes(str(tmp_path / "none")) == ""
    (tmp_path / "notes").write_bytes(b"\0" * 11)
    assert image_places._build_id_of_notes(str(tmp_path / "notes")) == ""


SEGMENTS = (
    Segment(0, 0, 0x600, 0x600, executable=False),
    Segment(0x1000, 0x1000, 0x3200, 0x3200, executable=True),
    Segment(0x5000, 0x5000, 0x100, 0x100, executable=False),
    Segment(0x5DD0, 0x6DD0, 0x260, 0x268, executable=False),
)
BASE = 0x7F0000000000


def _of_file(start: int, end: int, offset: int, inode: int = 7) -> Mapping:
    return Mapping(BASE + start, BASE + end, offset, 1, inode, "/app")


def _anonymous(start: int, end: int, path: str = "") -> Mapping:
    return Mapping(BASE + start, BASE + end, 0, 0, 0, path)


def test_memory_that_stands_for_code_of_a_file() -> None:
    """In whole or in part, wherever other parts of the file are; other memory beside a file does not."""
    rows = [_of_file(0, 0x1000, 0), _of_file(0x5000, 0x6000, 0x5000), _of_file(0x6000, 0x7000, 0x5000)]
    whole = _anonymous(0x1000, 0x5000)
    assert replaced(whole, rows, lambda _: SEGMENTS) == _of_file(0x1000, 0x5000, 0x1000)
    # Without its beginning, and a part of what is executed only.
    part = _anonymous(0x2000, 0x3000, "[anon:text]")
    parts = [_of_file(0x1000, 0x2000, 0x1000), _of_file(0x3000, 0x5000, 0x3000), *rows[1:]]
    assert replaced(part, parts, lambda _: SEGMENTS) == _of_file(0x2000, 0x3000, 0x2000)
    # Beside the file, in its data, far away, beside another file; a heap; no segments.
    for other in (_anonymous(0x7000, 0x8000), _anonymous(0x6000, 0x7000), _anonymous(0x10000000, 0x10001000)):
        assert replaced(other, rows, lambda _: SEGMENTS) is None
    assert replaced(_anonymous(0x1000, 0x5000, "[heap]"), rows, lambda _: SEGMENTS) is None
    assert replaced(whole, rows, lambda _: ()) is None
    assert replaced(whole, [], lambda _: SEGMENTS) is None
    assert replaced(_of_file(0x1000, 0x5000, 0x1000), rows, lambda _: SEGMENTS) is None


# ---------------------------------------------------------------------------------------------- met binaries
# What is known of binaries that were in stacks, and the names of their functions afterwards.


def test_details_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what is in a stripped binary to source lines; those of another one with the same build id count."""
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    whole = small_program.built(tmp_path)
    functions = tmp_path / "functions"
    tool("objcopy", "--strip-debug", whole, functions)
    stripped, debug = small_program.split(whole, tmp_path)
    assert detail(Binary.open(str(stripped), (str(tmp_path),))) is Detail.LINES
    debug.unlink()
    assert detail(Binary.open(str(whole))) is Detail.LINES
    assert detail(Binary.open(str(functions))) is Detail.SYMBOLS
    assert detail(Binary.open(str(stripped))) is Detail.BINARY
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    assert detail(Binary.open(str(stripped))) is Detail.SERVERS
    met = MetBinaries(Images({}, lines=True))
    build_id, address = Binary.open(str(whole)).elf.build_id, small_program.addresses(whole)["hidden"] + 1
    met.add(build_id, Binary.open(str(stripped)))
    assert met.details() == {build_id: Detail.SERVERS}
    assert met.functions(build_id, address) == []
    met = MetBinaries(Images({}, lines=True))
    for path in (stripped, functions, whole):
        met.add(build_id, Binary.open(str(path)))
    assert met.details() == {build_id: Detail.LINES}
    (frame,) = met.functions(build_id, address)
    assert (frame.name, frame.offset, bool(frame.line)) == ("hidden", 1, True)
    assert met.functions("ab" * 20, address) == met.functions(build_id, 1) == []


# ---------------------------------------------------------------------------------------------- line reading
# pytrace.runtime.stacks.images: what a user is told who waits for source lines, and how they stop.


def _steps(done: list[int], count: int = 3) -> Iterator[None]:
    for number in range(count):
        done.append(number)
        yield


def test_nobody_waits_while_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "TOLD_AFTER", -1.0)
    reading, done = LineReading(), []
    assert reading.run(_steps(done))
    assert done == [0, 1, 2]
    assert not reading.give_up()


def test_the_user_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "TOLD_AFTER", -1.0)
    reading, told = LineReading(), []
    reading.hurry(told.append, "stacks")
    reading.name("7 addresses in stacks")
    assert reading.run(_steps([]))
    assert reading.run(_steps([]))
    assert told == ["reading source lines of 7 addresses in stacks; Ctrl-C prints the rest without lines\n"]


def test_short_readings_are_not_worth_a_word() -> None:
    reading, told = LineReading(), []
    reading.hurry(told.append, "stacks")
    assert reading.run(_steps([]))
    assert told == []
    assert not reading.give_up(), "it is not source lines that are waited for"


def test_downloads_wait_for_the_end_and_for_the_user() -> None:
    reading = LineReading()
    asked: list[bool] = []

    def ask(stop: Callable[[], bool]) -> None:
        asked.append(stop())
        assert reading.give_up()
        asked.append(stop())
        assert not reading.give_up(), "the next signal breaks off"

    assert not reading.download(ask), "events would be lost meanwhile"
    reading.hurry(None, "stacks")
    assert reading.download(ask)
    assert asked == [False, True]
    assert not reading.download(ask), "nor for the next binary"
    assert not reading.run(_steps([0])), "source lines are left out, too"


def test_giving_up() -> None:
    reading, done = LineReading(), []
    reading.hurry(None, "stacks")

    def interrupted() -> Iterator[None]:
        yield
        assert reading.give_up()
        assert not reading.give_up(), "the next signal breaks off"
        yield
        raise AssertionError

    assert not reading.run(interrupted())
    assert not reading.run(_steps(done))
    assert done == [0], "not even a whole step"
    assert reading.run(iter(())), "what was read before is shown"


def test_a_second_signal_ends_the_reading_and_the_next_one_the_run() -> None:
    reading = LineReading()
    signals = Signals(asked(), reading.give_up)
    reading.hurry(None, "stacks")

    def interrupted() -> Iterator[None]:
        yield
        signals._handle(signal.SIGINT, None)
        yield

    assert not reading.run(interrupted())
    with pytest.raises(KeyboardInterrupt):
        signals._handle(signal.SIGINT, None)


def test_readings_have_little_time_when_the_user_asked_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, requests = [100.0], EndRequests()
    monkeypatch.setattr(images.time, "monotonic", lambda: now[0])
    reading, done = LineReading(requests), []

    def slow() -> Iterator[None]:
        for _ in range(10):
            now[0] += images.ENDING / 4
            done.append(0)
            yield

    assert reading.run(slow()), "nobody waits yet"
    requests.ending = True
    assert not reading.run(slow())
    assert len(done) == 10 + 5
    assert reading.late
    assert not reading.run(slow())
    assert len(done) == 15, "not even a step"
    assert not reading.give_up(), "the next signal breaks off"


def test_a_signal_in_the_middle_of_a_reading_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ENDING", 0.0)
    requests = EndRequests()

    def interrupted() -> Iterator[None]:
        yield
        requests.ending = True
        yield
        raise AssertionError

    assert not LineReading(requests).run(interrupted())


# ---------------------------------------------------------------------------------------------- names at the end


def test_names_are_looked_up_for_a_limited_time_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes after several thousand processes, on a machine that has no time."""
    monkeypatch.setattr(images, "NAMING", -1.0)
    reading = LineReading()
    assert reading.names_left(), "while the run goes on"
    reading.hurry(None, "stacks")
    assert not reading.names_left()
    assert reading.names_over == "names were looked up for -1 s after the end"
    assert not reading.run(_steps([])), "what is prepared for names stops, too"


def test_a_first_interrupt_in_a_long_end_is_heeded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has ended by itself, as its command has; nothing is looked up any more when the user asks for the end."""
    monkeypatch.setattr(images, "TOLD_AFTER", -1.0)
    monkeypatch.setattr(images, "ENDING", 0.0)
    requests, told = EndRequests(), []
    reading = LineReading(requests)
    reading.hurry(told.append, "stacks")
    assert reading.names_left()
    assert told == ["looking up names of user functions; Ctrl-C prints the rest as numbers\n"]
    requests.ending = True
    assert not reading.names_left()
    assert reading.names_over == "you asked for the end"


def test_a_second_interrupt_leaves_names_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has ended the run; the second one ends what takes long in its end, the third one all of it."""
    reading = LineReading(asked())
    reading.hurry(None, "stacks")
    assert reading.names_left()
    assert not reading.give_up(), "names do not take long yet"
    monkeypatch.setattr(images, "TOLD_AFTER", -1.0)
    assert reading.names_left()
    assert reading.give_up()
    assert not reading.names_left()
    assert not reading.give_up()
