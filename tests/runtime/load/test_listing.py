"""Lists of probes: kinds, arguments, functions of Python."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import TracepointField, UserParameter
from pytrace.core.probe_kinds import (
    FENTRY,
    FEXIT,
    INTERVAL,
    ITER,
    KPROBE,
    KRETPROBE,
    RAWTRACEPOINT,
    TRACEPOINT,
    UPROBE,
    IteratorTarget,
    KernelFunctionTarget,
    NoTarget,
    ProbeTarget,
    RawTracepointTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
)
from pytrace.core.types import INT32, UINT32
from pytrace.runtime.binaries.btf_types import Btf, Kind, TypeReader
from pytrace.runtime.binaries.kernel_types import KernelTypes
from pytrace.runtime.load import listing
from pytrace.runtime.load.listing import python_functions, python_parameters
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.btf_builder import BtfBuilder
from tests.support.compile import compiled
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- probes
# Listing of places: lists that are made in bulk say the same as lists of single places.


FUNCTIONS = "vfs_read\nvfs_write\nhelper\nnf_hook [nf]\nhelper [nf]\nhelper [other]\n"


@pytest.fixture
def kernel(tmp_path: Path) -> LiveKernel:
    path = tmp_path / "functions"
    path.write_text(FUNCTIONS)
    return LiveKernel(traceable_functions=str(path))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("kprobe:vfs_*", ["kprobe:vfs_read", "kprobe:vfs_write"]),
        ("kretprobe:vfs_read", ["kretprobe:vfs_read"]),
        ("kprobe:helper", ["kprobe:helper"]),
        ("k:*", ["kprobe:vfs_read", "kprobe:vfs_write", "kprobe:helper", "kprobe:nf_hook"]),
        ("kprobe:*:helper", ["kprobe:vmlinux:helper", "kprobe:nf:helper", "kprobe:other:helper"]),
        ("kprobe:n*:*", ["kprobe:nf:nf_hook", "kprobe:nf:helper"]),
        ("kprobe:vmlinux:*e*", ["kprobe:vmlinux:vfs_read", "kprobe:vmlinux:vfs_write", "kprobe:vmlinux:helper"]),
        ("kprobe:vfs_read+4", ["kprobe:vfs_read"]),
        ("kprobe:nothing*", []),
        ("kprobe:none:*", []),
        ("fentry:nothing_at_all*", []),
    ],
)
def test_kernel_functions(kernel: LiveKernel, pattern: str, expected: list[str]) -> None:
    text = listing.listing(kernel, pattern)
    assert text == "".join(f"{line}\n" for line in expected)
    assert listing.listing(kernel, f"{pattern},{pattern}") == text, "place by place"


def test_user_functions(kernel: LiveKernel) -> None:
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)
    text = listing.listing(kernel, f"uprobe:{path}:str*")
    lines = text.splitlines()
    assert f"uprobe:{path}:strerror" in lines
    assert listing.listing(kernel, f"call:{path}:str*") == text.replace("uprobe:", "call:")
    assert lines == sorted(set(lines))
    assert not any("@" in line for line in lines)
    assert listing.listing(kernel, f"uprobe:{path}:str*,uprobe:{path}:str*") == text
    assert listing.listing(kernel, f"uprobe:{path}:no_such_function_*") == ""
    with pytest.raises(TraceError, match="there is no binary"):
        listing.listing(kernel, f"uprobe:{path}.missing:*")
    with pytest.raises(TraceError, match="is not an ELF program or library"):
        listing.listing(kernel, f"uprobe:{__file__}:*")
    assert listing.listing(kernel, f'uprobe:{sys.executable}:cpp:"no::such*"') == ""


def test_files_that_patterns_find_may_be_broken_or_go(tmp_path: Path) -> None:
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(Path(libc).read_bytes())
    (tmp_path / "broken").write_bytes((tmp_path / "one").read_bytes()[:40])
    kernel = LiveKernel()
    found = kernel.binaries(f"{tmp_path}/*", None)
    assert found == [str(tmp_path / "one"), str(tmp_path / "two")]
    (tmp_path / "one").unlink()
    assert [item.name for item in kernel.user_symbols(found[0], "strerror")] == ["strerror"]
    assert kernel.binaries(f"{tmp_path}/*", None) == found[1:]
    with pytest.raises(TraceError, match=r"cannot read .*/one: No such file"):
        LiveKernel().user_symbols(found[0], "strerror")
    assert listing.listing(kernel, f"uprobe:{tmp_path}/*:strerror") == f"uprobe:{found[1]}:strerror\n"


def test_overlapping_patterns_list_once(kernel: LiveKernel) -> None:
    assert listing.listing(kernel, "kprobe:vfs_*,kprobe:*read").splitlines() == ["kprobe:vfs_read", "kprobe:vfs_write"]


def test_names_with_line_ends_are_not_listed(kernel: LiveKernel, tmp_path: Path) -> None:
    """They would look like other probes, and a script cannot name them."""
    name = r'\"evil\\nkprobe:x\"'
    text = f'asm(".globl {name}\\n.type {name}, @function\\n{name}:\\n ret\\n"); int main(void) {{ return 0; }}'
    path = compiled(tmp_path, "named", text)
    listed = listing.listing(kernel, f"uprobe:{path}:*")
    assert f"uprobe:{path}:main\n" in listed
    assert all(line.startswith("uprobe:") for line in listed.splitlines()), listed


# ---------------------------------------------------------------------------------------------- arguments
# pytrace.runtime.load.listing: arguments of each kind of probe as text, from facts made by hand.


def _types() -> KernelTypes:
    builder = BtfBuilder()
    number = builder.integer("int", 4, 1)
    file = builder.pointer(builder.struct("file", 4, ("f_flags", number, 0)))
    builder.enum("file", 4, ("FILE_ON", 1))
    builder.function("open", builder.prototype(number, ("path", file), ("", number)))
    builder.function("print", builder.prototype(0, ("format", number), ("", 0)))
    switch = builder.prototype(0, ("", builder.pointer(0)), ("prev", file), ("", number))
    builder.add(Kind.TYPEDEF, "btf_trace_switch", builder.pointer(switch))
    wrapped = builder.struct("", 8, ("task", file, 0), ("", number, 0), union=True)
    builder.struct("bpf_iter__task", 24, ("meta", file, 0), ("", wrapped, 64), ("count", number, 128))
    types = KernelTypes("/nothing")
    types.__dict__["vmlinux"] = TypeReader(Btf(builder.build()))
    return types


@dataclass
class Facts:
    """What arguments are made of."""

    types: KernelTypes | None = field(default_factory=_types)

    def tracepoint_fields(self, category: str, event: str) -> tuple[TracepointField, ...] | None:
        if (category, event) != ("sched", "exec"):
            return None
        return (
            TracepointField("common_type", UINT32, 0, 2, "unsigned short common_type"),
            TracepointField("common_pid", INT32, 4, 4, "int common_pid"),
            TracepointField("pid", INT32, 8, 4, "pid_t pid"),
        )

    def user_parameters(
        self, path: str, symbol: str, _address: int | None = None
    ) -> tuple[UserParameter, ...] | None:
        assert symbol, "an address has no parameters to ask for"
        return (UserParameter("n", INT32, "di", "const int"),) if (path, symbol) == ("/bin/app", "work") else None


OPEN = ["struct file * path", "int arg1"]


@each_row(
    ("kind", "place", "expected"),
    [
        (TRACEPOINT, TracepointTarget("sched", "exec"), ["pid_t pid"]),
        (TRACEPOINT, TracepointTarget("sched", "gone"), []),
        (KPROBE, KernelFunctionTarget("open"), OPEN),
        (KPROBE, KernelFunctionTarget("missing"), []),
        (KPROBE, KernelFunctionTarget(address=0xFFFF), []),
        # The value that a kretprobe has is no argument.
        (KRETPROBE, KernelFunctionTarget("open"), []),
        (FENTRY, TypedFunctionTarget("open", "vmlinux"), OPEN),
        (FENTRY, TypedFunctionTarget("print", "vmlinux"), ["int format", "..."]),
        (FENTRY, TypedFunctionTarget("open", "no_module"), []),
        (FENTRY, TypedFunctionTarget("open", "", program_id=7), []),
        (FEXIT, TypedFunctionTarget("open", "vmlinux"), [*OPEN, "int retval"]),
        (FEXIT, TypedFunctionTarget("print", "vmlinux"), ["int format", "..."]),
        (FEXIT, TypedFunctionTarget("missing", "vmlinux"), []),
        (RAWTRACEPOINT, RawTracepointTarget("switch", "vmlinux"), ["struct file * prev", "int arg1"]),
        (RAWTRACEPOINT, RawTracepointTarget("missing", "vmlinux"), []),
        (ITER, IteratorTarget("task"), ["struct file * meta", "struct file * task", "int count"]),
        (ITER, IteratorTarget("missing"), []),
        (UPROBE, UserTarget("/bin/app", 16, symbol="work"), ["const int n"]),
        (UPROBE, UserTarget("/bin/app", 16, symbol="other"), []),
        (UPROBE, UserTarget("/bin/app", 16), []),
        (INTERVAL, NoTarget(), []),
    ],
)
def test_arguments_of_a_place(kind: str, place: ProbeTarget, expected: list[str]) -> None:
    kernel: Any = Facts()
    assert listing.arguments_of(kernel, kind, place) == expected


@pytest.mark.parametrize("kind", [TRACEPOINT, KPROBE, FENTRY, FEXIT, RAWTRACEPOINT, ITER, UPROBE])
def test_a_place_of_another_shape_has_none(kind: str) -> None:
    kernel: Any = Facts()
    assert listing.arguments_of(kernel, kind, NoTarget()) == []


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (KPROBE, KernelFunctionTarget("open")),
        (FEXIT, TypedFunctionTarget("open", "vmlinux")),
        (RAWTRACEPOINT, RawTracepointTarget("switch", "vmlinux")),
        (ITER, IteratorTarget("task")),
    ],
)
def test_a_kernel_without_type_information(kind: str, place: ProbeTarget) -> None:
    kernel: Any = Facts(types=None)
    assert listing.arguments_of(kernel, kind, place) == []
    assert listing.type_definition(kernel, "struct", "file") == []


def test_definitions_by_word_and_name() -> None:
    kernel: Any = Facts()
    assert listing.type_definition(kernel, "struct", "file") == ["vmlinux: struct file {", "\tint f_flags;", "};"]
    assert listing.type_definition(kernel, "enum", "file") == ["vmlinux: enum file {", "\tFILE_ON = 1,", "};"]
    assert listing.type_definition(kernel, "union", "file") == []


# ---------------------------------------------------------------------------------------------- C text


SIGNED = 1


def _reader(builder: BtfBuilder) -> TypeReader:
    return TypeReader(Btf(builder.build()))


def test_declarations_as_c_text() -> None:
    builder = BtfBuilder()
    number, char = builder.integer("int", 4, SIGNED), builder.integer("char", 1)
    text = builder.pointer(builder.add(Kind.CONST, "", char))
    fixed = builder.add(Kind.CONST, "", text)
    callback = builder.pointer(builder.prototype(0, ("n", number), ("", 0)))
    table = builder.array(text, 4)
    node = builder.add(Kind.FWD, "node")
    reader = _reader(builder)
    assert listing.declare(reader, text, "name") == "const char *name"
    assert listing.declare(reader, fixed, "name") == "const char *const name"
    assert listing.declare(reader, callback, "done") == "void (*done)(int n, ...)"
    assert listing.declare(reader, table, "names") == "const char *names[4]"
    assert listing.declare(reader, node, "x") == "struct node x"
    assert listing.declared_argument(reader, text, "name") == "const char * name"


def test_definition_text() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4)
    inner = builder.struct("", 4, ("a", number, 0, 3), ("b", number, 3, 2))
    outer = builder.struct("outer", 8, ("x", number, 0), ("", inner, 32))
    colour = builder.enum("colour", 4, ("RED", 0), ("BLUE", 7))
    reader = _reader(builder)
    assert listing.definition_text(reader, outer) == [
        "vmlinux: struct outer {",
        "\tint x;",
        "\tstruct {\n\t\tint a: 3;\n\t\tint b: 2;\n\t};",
        "};",
    ]
    assert listing.definition_text(reader, colour) == ["vmlinux: enum colour {", "\tRED = 0,", "\tBLUE = 7,", "};"]


def test_pointers_to_arrays_and_functions_are_grouped() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, SIGNED)
    to_array = builder.pointer(builder.array(number, 3))
    function = builder.prototype(number, ("", number))
    table = builder.array(builder.pointer(function), 2)
    returns = builder.pointer(builder.prototype(to_array))
    flexible = builder.array(number, 0)
    grid = builder.array(builder.array(number, 3), 2)
    reader = _reader(builder)
    assert listing.declare(reader, to_array, "row") == "int (*row)[3]"
    assert listing.declare(reader, table, "calls") == "int (*calls[2])(int)"
    assert listing.declare(reader, returns, "make") == "int (*(*make)(void))[3]"
    assert listing.declare(reader, flexible, "rest") == "int rest[]"
    assert listing.declare(reader, grid, "grid") == "int grid[2][3]"
    assert listing.declare(reader, function) == "int (int)"


def test_names_qualifiers_and_tags() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, SIGNED)
    named = builder.add(Kind.TYPEDEF, "pid_t", number)
    qualified = builder.add(Kind.CONST, "", builder.add(Kind.VOLATILE, "", named))
    tagged = builder.pointer(builder.add(Kind.TYPE_TAG, "user", qualified))
    restricted = builder.add(Kind.RESTRICT, "", builder.pointer(0))
    union = builder.add(Kind.FWD, "later", flag=True)
    colour = builder.enum("colour", 4, ("RED", 0))
    wide = builder.enum64("wide", ("BIG", 1 << 40))
    reader = _reader(builder)
    assert listing.declare(reader, qualified, "x") == "const volatile pid_t x"
    assert listing.declare(reader, tagged, "x") == "const volatile pid_t *x"
    assert listing.declare(reader, restricted, "x") == "void *restrict x"
    assert listing.declare(reader, union, "x") == "union later x"
    assert listing.declare(reader, colour, "x") == "enum colour x"
    assert listing.declare(reader, wide) == "enum wide"
    assert listing.declare(reader, 0) == "void"
    assert listing.declared_argument(reader, number, "") == "int"


@pytest.mark.parametrize(("wide", "signed", "value"), [(False, True, -1), (True, False, 1 << 40)])
def test_values_of_enumerators(wide: bool, signed: bool, value: int) -> None:
    builder = BtfBuilder()
    add = builder.enum64 if wide else lambda name, *members: builder.enum(name, 4, *members, signed=signed)
    found = add("level", ("LEVEL", value))
    assert listing.definition_text(_reader(builder), found) == ["vmlinux: enum level {", f"\tLEVEL = {value},", "};"]


def test_unnamed_types_are_written_out_at_their_depth() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4)
    choice = builder.enum("", 4, ("ON", 1))
    innermost = builder.struct("", 4, ("how", choice, 0))
    inner = builder.struct("", 4, ("deep", innermost, 0), ("flat", number, 0), union=True)
    outer = builder.struct("outer", 4, ("", inner, 0))
    assert "\n".join(listing.definition_text(_reader(builder), outer)) == (
        "vmlinux: struct outer {\n"
        "\tunion {\n"
        "\t\tstruct {\n"
        "\t\t\tenum {\n"
        "\t\t\t\tON = 1,\n"
        "\t\t\t} how;\n"
        "\t\t} deep;\n"
        "\t\tint flat;\n"
        "\t};\n"
        "};"
    )


def test_a_definition_says_which_module_has_it() -> None:
    base = BtfBuilder()
    number = base.integer("int", 4)
    kernel = Btf(base.build())
    builder = BtfBuilder(kernel.end_id, kernel.end_string)
    own = builder.struct("own", 4, ("n", number, 0), union=True)
    reader = TypeReader(Btf(builder.build(), "module", kernel))
    assert listing.definition_text(reader, own)[0] == "module: union own {"


# ---------------------------------------------------------------------------------------------- python functions
# Functions of a Python file, without running it.


SOURCE = """
open("/no/such/folder/executed", "w")
def first(a, b=1, *rest, key, **others): return [n for n in (a, b)]
class Shop:
    async def buy(self, price):
        def inner(): return lambda: price
        return inner
def größe(): pass
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SOURCE)
    return str(tmp_path / "shop.py")


def test_names_and_parameters(source: str) -> None:
    assert python_functions(source, "*") == [
        "<module>", "first", "Shop", "Shop.buy", "Shop.buy.<locals>.inner", "Shop.buy.<locals>.inner.<locals>.<lambda>",
        "größe",
    ]  # fmt: skip
    assert python_functions(source, "Shop.b*y") == ["Shop.buy"]
    assert python_parameters(source, "first") == ["a", "b", "key", "rest", "others"]
    assert python_parameters(source, "other") == python_parameters("/no/file.py", "f") == []


def test_listing(source: str) -> None:
    kernel = LiveKernel()
    assert listing.listing(kernel, f"pythonret:{source}:f*", verbose=True).splitlines() == [
        f"pythonret:{source}:first", "    a", "    b", "    key", "    rest", "    others",
    ]  # fmt: skip
    assert listing.listing(kernel, f"py:{source}").splitlines()[0] == f"python:{source}:<module>"
    with pytest.raises(TraceError, match="listed by the file of their source"):
        listing.listing(kernel, "python:json:*")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        python_functions("/no/file.py", "*")
    for name, data in (("broken.py", b"def"), ("nul.py", b"\0"), ("latin.py", b"\xff")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TraceError, match="is no Python source"):
            python_functions(str(tmp_path / name), "*")
