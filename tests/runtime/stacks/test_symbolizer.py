"""Addresses become names, when they are asked for and for how long."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary, CachedDebugInfo
from pytrace.runtime.machine import procfs
from pytrace.runtime.machine.kernel_functions import KERNEL_HALF, Kallsyms
from pytrace.runtime.session import stack_rows
from pytrace.runtime.session.stack_rows import KeyPeriods
from pytrace.runtime.stacks import compiled_code, images, symbolizer
from pytrace.runtime.stacks.images import SymbolFrame
from pytrace.runtime.stacks.lazy_symbols import LazySymbols
from pytrace.runtime.stacks.symbolizer import Symbolizer
from tests.support.compile import compiled, tool
from tests.support.end_requests import asked
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- symbolizer
# pytrace.runtime.stacks.symbolizer: source lines read ahead; what is said of addresses that cannot be resolved.


def test_processes_of_others_have_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 6.16 show their mappings to CAP_SYS_PTRACE only."""
    monkeypatch.setattr(procfs, "read_maps", lambda pid: b"")
    monkeypatch.setattr(symbolizer, "hidden", lambda pid: True)
    symbols = Symbolizer()
    assert [frame.name for frame in symbols.user(os.getpid(), 0x1000)] == [""]
    (notice,) = symbols.notices()
    assert "no names of functions of other users' processes" in notice
    assert "CAP_SYS_PTRACE" in notice


def test_ended_processes_are_told_as_such() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    symbols = Symbolizer()
    assert [frame.name for frame in symbols.user(ended.pid, 0x1000)] == [""]
    assert symbols.notices() == [f"user addresses of exited processes are shown as numbers (pid {ended.pid})"]
    assert not symbolizer.hidden(ended.pid)
    assert not symbolizer.hidden(os.getpid())


def test_what_programs_lack_is_told_in_short() -> None:
    symbols = Symbolizer()
    long = {f"symbols of {number:03}{'x' * 5000}": f"{number:03}{'y' * 5000}" for number in range(200)}
    symbols._unreadable.update(long)
    notices = symbols.notices()
    assert len(notices) == 51
    assert notices[-1] == "150 more programs and libraries lack names"
    assert max(map(len, notices)) < 900
    for number in range(5000):
        symbols._unreadable[f"symbols of /build/{number}"] = f"{number} was removed"
    assert len(symbols._unreadable) == 512, "a machine that builds programs runs ever new ones"
    assert symbols.notices()[-1] == "at least 462 more programs and libraries lack names"


def test_files_that_lack_names_for_one_reason_are_told_together(tmp_path: Path) -> None:
    """.NET maps its libraries as they are: each process has dozens."""
    symbols = Symbolizer()
    for name in ("System.Linq.dll", "System.Runtime.dll", "a.dll", "b.dll"):
        (tmp_path / name).write_bytes(b"MZ" + bytes(100))
        with pytest.raises(TraceError) as refused:
            ElfFile((tmp_path / name).read_bytes(), str(tmp_path / name))
        symbols._unreadable[f"symbols of /{name}"] = refused.value.message
    (notice,) = symbols.notices()
    assert notice == (
        "no symbols of /System.Linq.dll, /System.Runtime.dll, /a.dll and 1 more: compiled code of .NET has names with"
        " DOTNET_PerfMapEnabled=1, that of its libraries with DOTNET_ReadyToRun=0, too"
    )


def test_hidden_addresses_of_the_kernel_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kallsyms").write_text("0000000000000000 T startup\n0000000000000000 t helper\n")
    symbols = Symbolizer()
    monkeypatch.setattr(symbols, "_kallsyms", Kallsyms(str(tmp_path / "kallsyms")))
    for address in (KERNEL_HALF + 1, KERNEL_HALF + 2):
        assert [frame.name for frame in symbols.kernel(address)] == [""]
    (notice,) = symbols.notices()
    assert notice.startswith("no names of kernel functions: the kernel hides their addresses (")


WAITING = """#include <stdio.h>
void NAME(void) { getchar(); }
int main(void) { puts("ready"); NAME(); }
"""


def _waiting(path: Path) -> subprocess.Popen[bytes]:
    """The program, which has mapped everything and waits for input."""
    process = subprocess.Popen(["stdbuf", "-o0", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("order", [1, -1])
def test_lines_are_read_ahead_for_all_processes_and_binaries(
    order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses of two programs that are mapped at the same place, of a library, and of nothing, interleaved."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places, others, running = [], [], []
    try:
        for name in ("first", "second"):
            path = compiled(tmp_path, name, WAITING.replace("NAME", name), "-g", "-O0", "-no-pie")
            process = _waiting(path)
            running.append(process)
            rows = procfs.executable_mappings(procfs.read_maps(process.pid))
            library = next(row.start for row in rows if "libc" in row.path)
            own = [symbol.address for symbol in Binary.open(str(path)).functions("*") if symbol.name in (name, "main")]
            places += [(process.pid, address) for address in own]
            others += [(process.pid, library + 64), (process.pid, 1)]
        symbols = Symbolizer(lines=True)
        mixed = [place for pair in zip(places, others, strict=True) for place in pair]
        assert list(symbols.prepare(mixed[::order])) != []
        monkeypatch.setattr(CachedDebugInfo, "reading", None)
        found = [(frame.name, frame.line) for place in places for frame in symbols.user(*place)]
        assert found == [("first", 2), ("main", 3), ("second", 2), ("main", 3)]
    finally:
        for process in running:
            process.communicate(b"\n")


def test_lines_that_were_not_read_in_time_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ENDING", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "#include <stdio.h>\nint main(void) { printf(\"%p\\n\", (void *)main); fflush(stdout); return getchar(); }"
    path = compiled(tmp_path, "p", text, "-g")
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address = int(child.stdout.readline(), 16)
        with closing(Symbolizer(lines=True, requests=asked())) as symbols:
            (frame,) = symbols.user(child.pid, address)
            assert (frame.name, frame.file) == ("main", "")
            assert symbols.notices() == [
                "source lines were read for 0.4 s after the interrupt; functions that were left have none"
            ]
        with closing(Symbolizer(lines=True)) as symbols:
            assert symbols.user(child.pid, address)[0].line == 2
            assert symbols.notices() == []
        child.communicate("\n")


def test_a_place_in_a_stripped_binary_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "#include <stdio.h>\nint main(void) { printf(\"%p\\n\", (void *)main); fflush(stdout); return getchar(); }"
    path = compiled(tmp_path, "stripped", text)
    linked = Binary.open(str(path)).address_of("main")
    tool("strip", path)
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address = int(child.stdout.readline(), 16)
        with closing(Symbolizer()) as symbols:
            assert symbols.user(child.pid, address) == [SymbolFrame("", linked, str(path))]
            assert symbols.user(child.pid, address, caller=True) == [SymbolFrame("", linked, str(path))]
        child.communicate("\n")


@pytest.mark.parametrize("interrupted", [True, False])
def test_what_is_left_out_at_the_end_is_counted(interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several thousand processes that have ended, each of which takes long."""
    requests = EndRequests()
    symbols = Symbolizer(requests=requests, places=True)
    looked: list[int] = []

    def slow(pid: int) -> None:
        looked.append(pid)
        if len(looked) == 10 and interrupted:
            requests.ending = True
        elif len(looked) == 10:
            monkeypatch.setattr(images, "NAMING", 0.0)

    monkeypatch.setattr(images, "ENDING", 0.0)
    monkeypatch.setattr(symbols, "_image", slow)
    symbols.hurry(None)
    symbols.wait_for(symbols.prepare([(pid, 0x1000) for pid in range(5)]), "addresses")
    for pid in range(5000):
        assert symbols.user(pid, 0x1000) == [SymbolFrame("")]
        symbols.origin(pid, 0x1000)
        symbols.user_place(pid, 0x1000)
        symbols.linked(pid, 0x1000)
        symbols.follow_code(pid)
    assert len(looked) == 10
    (notice,) = (text for text in symbols.notices() if "shown as numbers" in text and "replaced" not in text)
    why = "you asked for the end" if interrupted else "names were looked up for 0 s after the end"
    assert notice == f"4999 user addresses are shown as numbers: {why}"


# ---------------------------------------------------------------------------------------------- lazy
# pytrace.runtime.stacks.lazy_symbols: the symboliser is made by the first question, and not by its end.


def _name(item: object) -> str:
    return item if isinstance(item, str) else ""


class Noted:
    """Answers each question with its name and arguments."""

    descriptors = ("descriptors",)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: (name, arguments, options)


ASKING: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("kernel", (1,), {"caller": True}),
    ("user", (7, 1), {"caller": True}),
    ("trampoline", (7, 1), {}),
    ("kernel_place", (1,), {}),
    ("user_place", (7, 1), {}),
    ("linked", (7, 1), {}),
    ("owner", (7,), {}),
    ("origin", (7, 1), {}),
    ("start", ([7],), {"prompt": True, "images": (3, 4)}),
    ("prepare", ([(7, 1)],), {}),
    ("wait_for", (iter(()), "lines"), {}),
    ("keyed", ({}, 1), {}),
    ("follow_code", (7,), {}),
]
IDLE: list[tuple[str, tuple[Any, ...], Any]] = [
    ("changes", (), []), ("poll", (), None), ("hurry", (None,), None), ("give_up_lines", (), False),
    ("met_binaries", (), None), ("notices", (), []), ("close", (), None), ("renew", (1,), []), ("drained", (1,), None),
    ("attached", (), None), ("pause", (0.5,), 0.5),
]  # fmt: skip


@each_row(("name", "arguments", "options"), ASKING, ids=_name)
def test_questions_make_it_once(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(Noted())
        return made[-1]

    symbols = LazySymbols(make)
    for _ in range(2):
        answer = getattr(symbols, name)(*arguments, **options)
        assert answer == (name, arguments, options) or (answer is None and name in {"start", "wait_for", "keyed"})
    assert len(made) == 1


@pytest.mark.parametrize(("name", "arguments", "answer"), IDLE, ids=_name)
def test_nothing_is_made_for_what_only_goes_on(name: str, arguments: tuple[Any, ...], answer: Any) -> None:
    def make() -> Symbolizer:
        raise AssertionError("nobody asked")

    symbols = LazySymbols(make)
    assert getattr(symbols, name)(*arguments) == answer
    assert symbols.descriptors == []


@pytest.mark.parametrize(("name", "arguments", "answer"), IDLE, ids=_name)
def test_what_goes_on_reaches_the_one_that_was_made(name: str, arguments: tuple[Any, ...], answer: Any) -> None:
    called: list[str] = []

    class Counting(Noted):
        def __getattribute__(self, name: str) -> Any:
            called.append(name)
            return super().__getattribute__(name)

    made: Any = Counting()
    symbols = LazySymbols(lambda: made)
    symbols.kernel(1)
    getattr(symbols, name)(*arguments)
    assert called.count(name) == 1
    assert symbols.descriptors == ("descriptors",)


def test_every_question_of_the_symboliser_that_a_session_asks_is_there() -> None:
    names = {name for name in vars(LazySymbols) if not name.startswith("_")}
    assert names == {*(row[0] for row in ASKING), *(row[0] for row in IDLE), "descriptors"}
    assert all(hasattr(Symbolizer, name) for name in names)


# ---------------------------------------------------------------------------------------------- key periods
# pytrace.runtime.stacks.compiled_code: when keys appeared and changed, by searches at known times.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [100]
    monkeypatch.setattr(stack_rows, "SLACK", 0)
    monkeypatch.setattr(compiled_code.time, "monotonic_ns", lambda: now[0])
    return now


def test_periods(clock: list[int]) -> None:
    periods = KeyPeriods(lambda _process: True)

    def search(moment: int, **values: bytes) -> dict[int, tuple[int, int]]:
        """Search a map with the keys ``a`` and ``b`` of one address each, and one address that both have."""
        clock[0] = moment
        periods.begin()
        clock[0] = moment + 5
        for key, value in values.items():
            periods.note(7, [ord(key), 1], key.encode(), value)
        return {address: period for (_, address), period in periods.addresses.items()}

    assert search(200, a=b"1") == {97: (100, 205), 1: (100, 205)}
    assert search(300, a=b"1", b=b"1") == {97: (100, 205), 98: (200, 305), 1: (100, 305)}
    assert search(400, a=b"2", b=b"1") == {97: (100, 405), 98: (200, 305), 1: (100, 405)}
    assert search(500, b=b"1") == {98: (200, 305), 1: (200, 305)}
    assert search(600, a=b"2", b=b"1") == {97: (500, 605), 98: (200, 305), 1: (200, 605)}, "it was cleared"
    assert periods.begun == 600


def test_processes_are_asked_once_a_search() -> None:
    asked: list[int] = []
    periods = KeyPeriods(lambda process: not asked.append(process))
    for _ in range(2):
        periods.begin()
        assert periods.wanted(7)
        assert periods.wanted(7)
    assert asked == [7, 7]
