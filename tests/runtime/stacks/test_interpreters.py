"""CPython in a process: versions, layouts, line tables, functions, handlers of instructions."""

from __future__ import annotations

import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from generating import python_layouts
from msgspec.structs import replace

from pytrace.core.python_format import (
    CALL_ROW_FORMAT,
    FRAME,
    INDEX_BITS,
    NONE,
    RECORD,
    ROW,
    ROW_FORMAT,
    SLOT,
    SLOTS,
    UNIT,
    CallWord,
    Word,
)
from pytrace.runtime.binaries.elf_file import ElfFile, Symbol
from pytrace.runtime.machine import procfs
from pytrace.runtime.machine.procfs import Mapping
from pytrace.runtime.stacks import python_interpreters, python_processes
from pytrace.runtime.stacks.images import SymbolFrame
from pytrace.runtime.stacks.python_interpreters import (
    _LOCAL_EXEC,
    LOOP,
    EvalLoop,
    HandlerTables,
    Interpreter,
    UnsupportedError,
    are_functions,
    interpreter,
    layout,
    may_have,
    thread_values,
)
from pytrace.runtime.stacks.python_processes import (
    _MUSL,
    UNKNOWN,
    PythonFunctions,
    Walker,
    _Place,
    call_row,
    function,
    row,
)
from tests.support.compile import compiled, tool
from tests.support.pythons import PYTHONS, Python

# ---------------------------------------------------------------------------------------------- interpreters
# Interpreters of this machine, and binaries without one.


WHERE = """
import os, sys
for line in open("/proc/self/maps"):
    if line.split()[1].startswith("r-x") and ("libpython" in line or os.path.realpath(sys.executable) in line):
        print(line.split()[-1])
"""


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_version_and_layout(python: Python) -> None:
    paths = subprocess.run([*python.command, "-c", WHERE], check=True, capture_output=True, text=True).stdout.split()
    found = []
    for path in paths:
        with ElfFile.open(path) as file:
            found.append(interpreter(file))
    known = [item for item in found if item is not None]
    assert [item.layout.minor for item in known] == [python.minor]
    assert (known[0].thread_state is None) == (python.minor < 15)
    assert (known[0].loop != (0, 0)) == (python.minor < 11)


def test_a_program_without_an_interpreter() -> None:
    with ElfFile.open(os.path.realpath("/bin/sh")) as file:
        assert interpreter(file) is None


OLD = """
char PyCode_Type[400];
#ifdef LOOP
void *PyEval_EvalFrameEx(void *frame, int raised) { return frame; }
#endif
"""


def test_versions_without_a_runtime(tmp_path: Path) -> None:
    """CPython 2.7 to 3.6, as the library that they are; a program has a copy of the type alone."""
    with ElfFile.open(str(compiled(tmp_path, "libpython2.7.so", OLD, "-shared", "-fPIC", "-DLOOP"))) as file:
        with pytest.raises(UnsupportedError, match=r"^it is a CPython before 3\.7"):
            interpreter(file)
    with ElfFile.open(str(compiled(tmp_path, "python2.7", OLD, "-shared", "-fPIC"))) as file:
        assert interpreter(file) is None


def test_files_that_are_looked_at() -> None:
    assert may_have("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", program=False)
    assert may_have("/usr/sbin/uwsgi", program=True)
    assert not may_have("/usr/lib/x86_64-linux-gnu/libc.so.6", program=False)


def test_where_a_thread_has_its_state() -> None:
    code = bytes.fromhex("f30f1efa64488b0425d8ffffffc3")
    match = _LOCAL_EXEC.match(code)
    assert match is not None
    assert int.from_bytes(match[1], "little", signed=True) == -40
    assert _LOCAL_EXEC.match(code[4:]) is not None
    assert _LOCAL_EXEC.match(bytes.fromhex("833d3b49770000740abfe010ba00e97f2e1100")) is None


@pytest.mark.parametrize(
    ("code", "offset"),
    [
        ("64488b042500000000488b808000000089ff488b04f8c3", 0x80),  # musl 1.2.3, GCC
        ("64488b042500000000488b808000000089f9488b04c8c3", 0x80),  # musl 1.2.5, clang
        ("554889e589f864488b0c2500000000488b4978488b04c15dc3", 0x78),  # with a frame pointer, and a short offset
        ("83ff1f773f89ff64488b142510000000488d4731", None),  # glibc 2.36
        ("64488b042500000000c3", None),
        ("", None),
    ],
)
def test_where_musl_has_the_values_of_a_thread(monkeypatch: pytest.MonkeyPatch, code: str, offset: int | None) -> None:
    data = bytes.fromhex(code)
    with ElfFile.open(os.path.realpath("/bin/sh")) as file:
        assert thread_values(file) is None
        function = Symbol("pthread_getspecific", 0x1000, len(data))
        monkeypatch.setattr(ElfFile, "any_symbol", lambda _file, _name: function)
        monkeypatch.setattr(python_interpreters, "_data", lambda _file, _address, size: data[:size])
        assert thread_values(file) == offset


# ---------------------------------------------------------------------------------------------- layouts
# Layouts of CPython's versions: those of the file, those that interpreters publish, and headers of this machine.


sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))


def published(minor: int, **changed: int) -> bytes:
    """The beginning of ``_PyRuntime`` of an interpreter with the layout of the file."""
    build = minor, bool(changed.get("free_threaded"))
    row, indexes = python_interpreters._rows()[0][build], python_interpreters._rows()[1][build]
    words = [0] * python_interpreters._WORDS
    words[python_interpreters._VERSION] = 0x300 + minor << 16 | 0x4F0
    for name, index in indexes.items():
        words[index] = changed.get(name, getattr(row, name))
    words[python_interpreters._FREE_THREADED] = changed.get("free_threaded", 0)
    return python_interpreters.COOKIE + struct.pack(f"={python_interpreters._WORDS - 1}Q", *words[1:])


def test_versions() -> None:
    rows, _ = python_interpreters._rows()
    ordinary, free = ([(minor, one) for minor in range(first, 16)] for first, one in ((9, False), (13, True)))
    assert sorted(rows) == sorted(ordinary + free)
    for (minor, free_threaded), known in rows.items():
        assert (known.minor, known.free_threaded) == (minor, free_threaded)
        assert known.header_extra == (16 if free_threaded else 0)
        assert known.kind_shift == (8 if free_threaded and minor > 13 else 2)
        assert (known.code_tlbc is None) == (known.frame_tlbc is None) == (not free_threaded or minor < 14)
        assert (known.code_bytes is None) == (minor < 11)
        assert (known.cframe_frame is None) == (minor not in {11, 12})
        assert (known.tss_key is None) == (minor == 15)
        assert (known.frame_entry is None) == (known.cframe_previous is None) == (minor != 11)
        assert (known.code_traceable is None) == (minor < 11)


@pytest.mark.parametrize("free_threaded", [False, True])
@pytest.mark.parametrize("minor", [13, 14, 15])
def test_what_is_published_counts(minor: int, free_threaded: bool) -> None:
    build = {"free_threaded": int(free_threaded)}
    assert layout(minor, published(minor, **build)) == python_interpreters._rows()[0][minor, free_threaded]
    assert layout(minor, published(minor, thread_id=1234, **build)).thread_id == 1234


@pytest.mark.parametrize(
    ("minor", "runtime", "message"),
    [
        (8, b"", "CPython 3.8 is not supported"),
        (16, b"", "CPython 3.16 is not supported"),
        (13, b"", "does not begin with the offsets of CPython 3.13"),
        (13, published(14), "does not begin with the offsets of CPython 3.13"),
        (14, published(14, thread_id=1 << 40), "publishes for thread_id"),
        (14, published(14, code_size=4096), "larger"),
    ],
)
def test_refused(minor: int, runtime: bytes, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        layout(minor, runtime)


@pytest.mark.parametrize("headers", sorted(glob.glob("/usr/include/python3.*[0-9]")))
def test_headers_of_this_machine(headers: str) -> None:
    text = Path(python_interpreters.FILE).read_text()
    assert python_layouts.merged(text, [headers]) == text


# ---------------------------------------------------------------------------------------------- line tables
# Lines of instructions, compared with those that interpreters themselves name.


SHAPES = (
    '''
def first(a,
          b):
    """Text."""
    x = [
        value
        for value in (a, b)
        if value
    ]
    try:
        return x if a else (
            b)
    except ValueError as error:
        raise error from None
    finally:
        del x


def far():
    pass
'''
    + "\n" * 300
    + """
async def later():
    async with far() as a:
        await a; await a
    return lambda: 1
"""
)

DUMP = """
import sys, json, base64
def codes(code):
    yield code
    for one in code.co_consts:
        if hasattr(one, "co_code"):
            yield from codes(one)
rows = []
for path in sys.argv[1:]:
    code = compile(open(path).read(), path, "exec")
    for one in codes(code):
        lines = [None] * (len(one.co_code) // 2)
        if hasattr(one, "co_lines"):
            for start, end, line in one.co_lines():
                for index in range(start // 2, end // 2):
                    lines[index] = line
        else:
            import dis
            starts = dict(dis.findlinestarts(one))
            line = one.co_firstlineno
            for index in range(len(lines)):
                line = starts.get(2 * index, line)
                lines[index] = line
        table = one.co_linetable if hasattr(one, "co_linetable") else one.co_lnotab
        rows.append((one.co_firstlineno, base64.b64encode(table).decode(), lines))
print(json.dumps(rows))
"""


def test_lines_of_this_interpreter() -> None:
    code = compile(SHAPES, "shapes", "exec")
    found = 0
    for one in [code, *(item for item in code.co_consts if isinstance(item, CodeType))]:
        for start, end, line in one.co_lines():
            for index in range(start // 2, end // 2):
                if line is not None:
                    read = python_processes.line_of(sys.version_info.minor, one.co_linetable, one.co_firstlineno, index)
                    assert read == line
                    found += 1
    assert found > 100


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_lines_of_other_versions(python: Python, tmp_path: object) -> None:
    import base64

    path = f"{tmp_path}/shapes.py"
    with open(path, "w") as file:
        file.write(SHAPES)
    text = subprocess.run([*python.command, "-c", DUMP, path], check=True, capture_output=True, text=True).stdout
    for first, table, lines in json.loads(text):
        for index, line in enumerate(lines):
            read = python_processes.line_of(python.minor, base64.b64decode(table), first, index)
            assert read == (first if line is None else line), (first, index)


@pytest.mark.parametrize("minor", [9, 10, 11, 14])
def test_a_table_that_is_cut_or_damaged_has_the_first_line_or_some_other(minor: int) -> None:
    assert python_processes.line_of(minor, b"", 7, 3) == 7
    assert python_processes.line_of(minor, b"\xff", 7, -1) == 7
    for damaged in (b"\xf7\xff\xff\xff", b"\x00" * 9, bytes(range(255))):
        assert isinstance(python_processes.line_of(minor, damaged, 7, 1 << 23), int)


# ---------------------------------------------------------------------------------------------- checking
# Layouts checked against running interpreters: the right one passes, another one is refused.


RUNS = "import threading, sys; threading.Thread(target=sys.stdin.read).start(); print(flush=True); sys.stdin.read()"


@contextmanager
def running(python: Python) -> Iterator[tuple[int, Interpreter, int]]:
    """A process with two threads, its interpreter and how far that was moved."""
    command = [*python.command, "-c", RUNS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        for item in procfs.executable_mappings(procfs.read_maps(program.pid)):
            if item.inode and "python" in item.path:
                binary = python_processes._read(program.pid, item)
                bias = None if binary is None else python_processes._bias(binary, item)
                if binary is not None and binary.interpreter is not None and bias is not None:
                    yield program.pid, binary.interpreter, bias
        program.kill()


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_the_right_layout(python: Python) -> None:
    with running(python) as (pid, interpreter, bias):
        assert python_interpreters.check(pid, interpreter, bias)


@pytest.mark.parametrize("member", ["thread_id", "frame_code", "threads_head", "thread_frame"])
def test_another_layout(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_interpreters, "_PAUSE", 0)
    with running(PYTHONS[0]) as (pid, interpreter, bias):
        layout = interpreter.layout
        # From CPython 3.13 on the main thread follows the first one (3.14: behind one more), and what follows the
        # frame may be null.
        beyond = 8 if layout.minor < 13 else 16 if layout.minor == 13 else 24
        by = {"threads_head": beyond, "thread_frame": -8}.get(member, 8)
        wrong = replace(interpreter, layout=replace(layout, **{member: getattr(layout, member) + by}))
        with pytest.raises(UnsupportedError, match="differ from those of CPython"):
            python_interpreters.check(pid, wrong, bias)


def test_a_process_that_is_gone() -> None:
    interpreter = Interpreter(python_interpreters.layout(11, b""), 0, 0, None)
    with pytest.raises(OSError, match="No such file"):
        python_interpreters.check(1 << 22 | 1, interpreter, 0)


# ---------------------------------------------------------------------------------------------- functions
# Functions of records, as programs write them.


TABLE = bytes([0x80 | 10 << 3 | 1, 0, 4, 0x80 | 12 << 3 | 1, 0, 4])
"""Two code units of the first line, and two of the line two below it (3.11)."""


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def record(name: bytes, kind: int = 1, file: bytes = b"app.py", first: int = 5, minor: int = 11) -> bytes:
    body = padded(name) + padded(file) + padded(TABLE)
    size = -(-(RECORD.size + len(body)) // UNIT) * UNIT
    head = RECORD.pack(minor, first, kind, len(name) // kind, 1, len(file), len(TABLE), size, *[0] * 4)
    return (head + body).ljust(size, b"\0")


@pytest.mark.parametrize(
    ("data", "kind", "name"),
    [
        (b"handler", 1, "handler"),
        ("würfel".encode("latin-1"), 1, "würfel"),
        ("名前".encode("utf-16-le"), 2, "名前"),
        ("𝔰s".encode("utf-32-le"), 4, "𝔰s"),
        (b"a\nb\x7f", 1, "a\\x0ab\\x7f"),
        (b"\x00\xd8", 2, "\ufffd"),
    ],
)
def test_names(data: bytes, kind: int, name: str) -> None:
    read = function(record(data, kind))
    assert read is not None
    assert (read.name, read.file) == (name, "app.py")
    assert read.frame(2, lines=True) == SymbolFrame(name, 4, "app.py", "app.py", 7)
    assert read.frame(-1, lines=True).line == 5
    assert read.frame(2, lines=False) == SymbolFrame(name, 4, "app.py")


def test_no_record() -> None:
    assert function(b"") is None
    assert function(bytes(200)) is None


def test_frames() -> None:
    functions = PythonFunctions(lines=True)
    address = FRAME | 3 << INDEX_BITS | 1
    assert functions.has(address)
    assert not functions.has(0x7FFF_FFFF_FFFF)
    assert functions.frame(address - (1 << INDEX_BITS)) == UNKNOWN
    functions = PythonFunctions(lines=True)
    with tempfile.TemporaryFile() as file, ExitStack() as stack:
        os.truncate(file.fileno(), SLOT * SLOTS)
        os.pwrite(file.fileno(), record(b"one"), 2 * UNIT)
        functions.start(file.fileno(), stack)
        assert functions.frame(address) == SymbolFrame("one", 0, "app.py", "app.py", 5)
        assert functions.frame(address + 3).line == 7
        assert functions.frame(FRAME | 1) == UNKNOWN
        assert functions.frame(FRAME | (1 << 32) - 1 << INDEX_BITS) == UNKNOWN
    assert functions.frame(address) == SymbolFrame("one", 0, "app.py", "app.py", 5)


# ---------------------------------------------------------------------------------------------- handlers
# Whether handlers are functions: programs of which each has a loop, called as that of CPython.


_HANDLERS = 256
FUNCTIONS = 160
"""The least is 150, and some handlers are in several places."""
PIE, FIXED = ("-fPIE", "-pie"), ("-fno-pie", "-no-pie")


def tail_calls(functions: int, start: str) -> str:
    """A loop that calls *start*, which goes to functions, of which there are so many."""
    lines = ["typedef long handler(const unsigned char *, long); handler *table[256];"]
    lines += [
        f"static long f{number}(const unsigned char *at, long n) {{ return table[*at](at + 1, n ^ {number + 3}); }}"
        for number in range(functions)
    ]
    rows = ", ".join(f"f{number % functions}" for number in range(_HANDLERS))
    table = f"handler *table[256] = {{{rows}}};"
    begin = f"{start} static long start_frame(const unsigned char *at) {{ return table[*at](at + 1, 0); }}"
    loop = f"long {LOOP}(const unsigned char *at) {{ volatile long entry = 1; return start_frame(at) + entry; }}"
    return "\n".join([*lines, table, begin, loop, f"int main(void) {{ return {LOOP}((void *)main); }}"])


def _labels() -> str:
    """A loop with computed gotos."""
    rows = ", ".join(f"&&l{number}" for number in range(_HANDLERS))
    labels = "\n".join(f"l{number}: n ^= {number + 3}; goto *table[*at++];" for number in range(_HANDLERS))
    loop = f"long {LOOP}(const unsigned char *at) {{ static void *table[] = {{{rows}}}; long n = 0;\n"
    loop += f"goto *table[*at++];\n{labels}\n}}"
    return f"{loop}\nint main(void) {{ return {LOOP}((void *)main); }}"


def _found(path: Path) -> bool:
    with ElfFile.open(str(path)) as file:
        return are_functions(file)


@pytest.mark.parametrize("start", ["__attribute__((noinline))", "inline __attribute__((always_inline))"])
@pytest.mark.parametrize("options", [PIE, FIXED], ids=["pie", "fixed"])
def test_functions(tmp_path: Path, start: str, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path, "tails", tail_calls(FUNCTIONS, start), "-O2", "-rdynamic", *options)
    assert _found(program)
    tool("strip", program)
    assert _found(program)
    tool("objcopy", "--remove-section=.eh_frame_hdr", program)
    assert not _found(program)


def test_a_few_functions(tmp_path: Path) -> None:
    """A table of a ``switch``, or of what is not instructions."""
    assert not _found(compiled(tmp_path, "few", tail_calls(40, ""), "-O2", "-rdynamic"))


@pytest.mark.parametrize("options", [PIE, FIXED], ids=["pie", "fixed"])
def test_labels(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path, "labels", _labels(), "-O2", "-fno-gcse", "-rdynamic", *options)
    with ElfFile.open(str(program)) as file:
        symbol, tables = file.any_symbol(LOOP), HandlerTables(file)
        assert symbol is not None
        found = list(tables.referred(symbol.address, tables.data(symbol.address, symbol.size)))
        assert any(len(set(table)) == _HANDLERS for table in found)
        assert not are_functions(file)


def test_no_loop() -> None:
    assert not _found(Path("/bin/sh").resolve())


# ---------------------------------------------------------------------------------------------- processes
# Rows of processes, as they start, execute, fork and end.


def processes_interpreter(minor: int, distance: int | None = None, *, free_threaded: bool = False) -> Interpreter:
    return Interpreter(python_interpreters._rows()[0][minor, free_threaded], 0x1000, 0x2000, distance)


def test_row_of_an_old_version() -> None:
    words = ROW_FORMAT.unpack(row(processes_interpreter(9), 0x10000, 3))
    assert len(words) * 8 == ROW
    assert words[Word.GENERATION] == 3
    assert words[Word.KEY_PLACE] == 0x11000 + 584
    assert words[Word.CODE_TYPE] == 0x12000
    assert words[Word.INDEX_SHIFT] == 1
    assert words[Word.LOOP_START] == words[Word.COLD_END] == 0
    assert words[Word.CFRAME_FRAME] == words[Word.FRAME_OWNER] == words[Word.CODE_VERSION] == NONE


def test_code_of_the_loop() -> None:
    words = ROW_FORMAT.unpack(row(replace(processes_interpreter(10), loop=(0x3000, 0x4000)), 0x10000, 1))
    assert words[Word.LOOP_START : Word.COLD_END + 1] == (0x13000, 0x14000, 0, 0)


def test_row_of_a_new_version() -> None:
    words = ROW_FORMAT.unpack(row(processes_interpreter(15, -40), 0, 1))
    assert words[Word.KEY_PLACE] == 0
    assert words[Word.TLS] == (1 << 64) - 40
    assert words[Word.INDEX_SHIFT] == NONE


def test_row_of_a_free_threaded_build() -> None:
    """Objects have a longer header, strings another state, and threads their own instructions."""
    words = ROW_FORMAT.unpack(row(processes_interpreter(14, free_threaded=True), 0, 1))
    assert (words[Word.HEADER_EXTRA], words[Word.KIND_SHIFT]) == (16, 8)
    assert (words[Word.FRAME_TLBC], words[Word.CODE_TLBC]) == (72, 224)
    ordinary = ROW_FORMAT.unpack(row(processes_interpreter(14), 0, 1))
    assert (ordinary[Word.HEADER_EXTRA], ordinary[Word.KIND_SHIFT]) == (0, 2)
    assert ordinary[Word.FRAME_TLBC] == ordinary[Word.CODE_TLBC] == NONE


def test_row_of_a_tail_calling_interpreter() -> None:
    assert ROW_FORMAT.unpack(row(processes_interpreter(14), 0, 1))[Word.TAIL_CALLS] == 0
    assert ROW_FORMAT.unpack(row(replace(processes_interpreter(14), tail_calls=True), 0, 1))[Word.TAIL_CALLS] == 1


def test_row_with_musl() -> None:
    assert ROW_FORMAT.unpack(row(processes_interpreter(12), 0, 1))[Word.THREAD_VALUES] == NONE
    musl = replace(processes_interpreter(12), thread_values=0x80)
    assert ROW_FORMAT.unpack(row(musl, 0, 1))[Word.THREAD_VALUES] == 0x80


@pytest.mark.parametrize(
    ("name", "musl"),
    [
        ("ld-musl-x86_64.so.1", True),
        ("libc.so", True),
        ("libc.musl-x86_64.so.1", True),
        ("libc.so.6", False),
        ("libcap.so", False),
    ],
)
def test_names_of_musl(name: str, musl: bool) -> None:
    assert (_MUSL.fullmatch(name) is not None) == musl


class Rows:
    """The map of rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[int, bytes] = {}
        monkeypatch.setattr(python_processes.bpf, "map_update", self.update)
        monkeypatch.setattr(python_processes.bpf, "map_delete", self.delete)

    def update(self, _descriptor: int, key: bytes, value: bytes) -> None:
        self.rows[struct.unpack("=I", key)[0]] = value

    def delete(self, _descriptor: int, key: bytes) -> bool:
        return self.rows.pop(struct.unpack("=I", key)[0], None) is not None

    def generations(self) -> dict[int, int]:
        return {pid: ROW_FORMAT.unpack(value)[Word.GENERATION] for pid, value in self.rows.items()}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    return Rows(monkeypatch)


def walker(monkeypatch: pytest.MonkeyPatch, messages: list[str], *, everything: bool = False) -> Walker:
    """Every process but 1 has an interpreter."""
    made = Walker(3, messages.append, everything=everything)
    made._binaries[1, 2] = python_processes._Binary(processes_interpreter(11))
    monkeypatch.setattr(procfs, "read_maps", lambda _pid: b"some")
    monkeypatch.setattr(made, "_find", lambda pid, _mappings: None if pid == 1 else _Place((1, 2), 0x1000))
    return made


def test_a_process_and_its_children(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    made = walker(monkeypatch, [])
    made.add(1)
    made.add(7)
    made.add(7)
    assert rows.generations() == {7: 1}
    made.update([("fork", 8, 7), ("fork", 9, 100), ("map", 7, 0), ("map", 10, 0)])
    assert rows.generations() == {7: 1, 8: 2}
    made.update([("exec", 8, 0), ("map", 8, 0)])
    assert rows.generations() == {7: 1, 8: 3}
    made.update([("exit", 7, 0), ("fork", 11, 8), ("exit", 11, 0)])
    assert rows.generations() == {8: 3}


def test_the_whole_machine(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    made = walker(monkeypatch, [], everything=True)
    made.update([("map", 5, 0), ("map", 1, 0)])
    assert rows.generations() == {5: 1}


def test_an_interpreter_that_is_not_known_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: Rows
) -> None:
    messages: list[str] = []
    made = Walker(3, messages.append, everything=False)

    def old(_file: object) -> None:
        raise UnsupportedError("it is a CPython before 3.9")

    monkeypatch.setattr(python_interpreters, "interpreter", old)
    program = os.path.realpath("/bin/sh")
    mapping = Mapping(0x1000, 0x2000, 0, 1, 2, program)
    assert made._find(os.getpid(), [mapping]) is None
    assert made._find(os.getpid(), [mapping]) is None
    assert messages == [f"no Python stacks of {program} (process {os.getpid()}): it is a CPython before 3.9"]
    gone: Any = 1 << 22 | 1
    assert made._find(gone, [Mapping(0x1000, 0x2000, 0, 1, 3, str(tmp_path / "python"))]) is None
    assert (1, 3) not in made._binaries


def test_second_rows() -> None:
    """Of a version whose functions cannot be probed, they have nothing."""
    known = Interpreter(python_interpreters._rows()[0][11, False], 0x1000, 0x2000, None, objects=(1, 2, 3, 4))
    words = CALL_ROW_FORMAT.unpack(call_row(known, EvalLoop((), (), 3), 0x100))
    assert len(words) == len(CallWord)
    assert words[CallWord.NO_VALUE : CallWord.CELL_TYPE + 1] == (0x101, 0x102, 0x103)
    assert words[CallWord.FLOAT_TYPE] == 0x104
    assert words[CallWord.FRAME_REGISTER] == 3
    assert words[CallWord.OPCODES] == int.from_bytes(bytes([83, 255, 255, 255, 144, 255]), "little")
    assert CALL_ROW_FORMAT.unpack(call_row(processes_interpreter(9), None, 0))[CallWord.CODE_FIRST] == NONE
    lines = [
        CALL_ROW_FORMAT.unpack(call_row(processes_interpreter(minor), None, 0))[CallWord.LINES_DATA]
        for minor in (13, 14)
    ]
    assert lines == [NONE, 1]
