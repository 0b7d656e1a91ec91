"""pytrace.runtime.binaries.kernel_types: where type information is, and look-ups over a small kernel."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, INT64, VOID, AddressSpace, Enum, Pointer, Struct
from pytrace.runtime.binaries import kernel_types
from pytrace.runtime.binaries.btf_types import Btf, Kind
from pytrace.runtime.binaries.kernel_types import KernelTypes, locate
from pytrace.runtime.machine import bpf
from tests.support.btf_builder import BtfBuilder
from tests.support.compile import compiled, tool

SIGNED = 1


def add_event(builder: BtfBuilder, name: str, *parameters: tuple[str, int]) -> None:
    """A raw tracepoint: the typedef of a pointer to its prototype, whose first parameter is a context."""
    builder.add(Kind.TYPEDEF, f"btf_trace_{name}", builder.pointer(builder.prototype(0, *parameters)))


def vmlinux() -> bytes:
    builder = BtfBuilder()
    number, long = builder.integer("int", 4, SIGNED), builder.integer("long", 8, SIGNED)
    context = builder.pointer(0)
    builder.add(Kind.TYPEDEF, "pid_t", number)
    builder.struct("task", 4, ("pid", number, 0))
    builder.struct("either", 4, ("pid", number, 0), union=True)
    builder.enum("colour", 4, ("RED", 0), ("BLUE", 7))
    builder.enum64("wide", ("SMALL", 1), ("BIG", 1 << 40))
    for name in ("vfs_read", "vfs_write", "both"):
        builder.function(name, builder.prototype(number, ("n", long)))
    # Function pointers have no names of parameters before kernels of 6.10 or so; functions of the event do.
    add_event(builder, "named", ("", context), ("prev", number))
    add_event(builder, "switch", ("", context), ("", number), ("", long))
    builder.function("__bpf_trace_switch", builder.prototype(0, ("__data", context), ("prev", number)))
    full = builder.prototype(number, ("__data", context), ("from", number), ("to", long))
    builder.function("__traceiter_switch", full)
    add_event(builder, "nameless", ("", context), ("", number), ("kept", long))
    builder.struct("bpf_iter__task", 8, ("task", context, 0))
    builder.struct("bpf_iter__task__safe_trusted", 8, ("task", context, 0))
    builder.add(Kind.TYPEDEF, "bpf_iter__nothing", number)
    return builder.build()


def module(base: bytes, function: str, event: str) -> bytes:
    kernel_part = Btf(base)
    builder = BtfBuilder(kernel_part.end_id, kernel_part.end_string)
    number = kernel_part.find("int", Kind.INT)
    builder.struct(f"{function}_state", 8, ("x", number, 0))
    builder.function(function, builder.prototype(0, ("x", number)))
    builder.function("both", builder.prototype(0, ("x", number)))
    builder.enum(f"{function}_mode", 4, (f"{function.upper()}_ON", 3))
    add_event(builder, event, ("", number), ("own", number))
    builder.struct(f"bpf_iter__{event}", 8, ("x", number, 0))
    return builder.build()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /sys/kernel/btf."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "btf"
    made.mkdir()
    data = vmlinux()
    (made / "vmlinux").write_bytes(data)
    (made / "nf").write_bytes(module(data, "nf_hook", "nf_event"))
    (made / "alpha").write_bytes(module(data, "alpha_run", "alpha_event"))
    monkeypatch.setattr(kernel_types, "SYSTEM_BTF", str(made / "vmlinux"))
    return made


@pytest.fixture
def types(folder: Path) -> KernelTypes:
    return KernelTypes(str(folder / "vmlinux"))


# ---------------------------------------------------------------------------------------------- where it is


def test_variables_come_first_and_must_name_a_file(tmp_path: Path, folder: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    theirs.write_text("theirs")
    both = {"PYTRACE_BTF": str(mine), "BPFTRACE_BTF": str(theirs)}
    assert locate(both) == str(mine)
    assert locate({"PYTRACE_BTF": "", "BPFTRACE_BTF": str(theirs)}) == str(theirs)
    mine.write_text("")
    with pytest.raises(TraceError, match=f"PYTRACE_BTF names an empty file: {mine}"):
        locate(both)
    mine.unlink()
    with pytest.raises(TraceError, match=f"PYTRACE_BTF names a file that does not exist: {mine}"):
        locate(both)


def test_the_kernels_own_or_else_a_vmlinux(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert locate({}) == str(folder / "vmlinux")
    (folder / "vmlinux").write_text("")  # as a hypervisor's sandbox has it
    monkeypatch.setattr(kernel_types, "_SEARCH", (f"{tmp_path}/none-{{release}}", f"{tmp_path}/vmlinux-{{release}}"))
    assert locate({}) == ""
    image = tmp_path / f"vmlinux-{os.uname().release}"
    image.write_text("image")
    assert locate({}) == str(image)


def test_type_information_in_an_elf_file(tmp_path: Path, folder: Path) -> None:
    path = compiled(tmp_path, "image", "int main(void) { return 0; }\n")
    with pytest.raises(TraceError, match=r"image has no type information \(.BTF section\)"):
        _ = KernelTypes(str(path)).vmlinux
    tool("objcopy", "--add-section", f".BTF={folder / 'vmlinux'}", path)
    found = KernelTypes(str(path))
    assert found.value_type("typedef", "pid_t") == INT32
    assert found.modules == {}, "those of the running kernel do not belong to it"


# ---------------------------------------------------------------------------------------------- look-ups


def test_modules_by_name(types: KernelTypes, folder: Path) -> None:
    assert types.modules == {"alpha": str(folder / "alpha"), "nf": str(folder / "nf")}
    assert types.module("vmlinux") is types.vmlinux
    assert types.module("nothing") is None
    assert types.module("nf") is types.module("nf")
    assert [reader.btf.name for reader in types.readers()] == ["vmlinux", "alpha", "nf"]
    assert [reader.btf.name for reader in types.readers("n*")] == ["nf"]


@pytest.mark.parametrize(
    ("kind", "name", "there"),
    [
        ("struct", "task", True), ("union", "task", False), ("union", "either", True), ("struct", "either", False),
        ("enum", "colour", True), ("enum", "wide", True), ("typedef", "pid_t", True), ("typedef", "int", True),
        ("typedef", "task", False), ("struct", "nf_hook_state", True), ("struct", "missing", False),
    ],
)  # fmt: skip
def test_types_by_kind_and_name(types: KernelTypes, kind: str, name: str, there: bool) -> None:
    assert (types.value_type(kind, name) is not None) is there
    # Ids are those of the kernel proper.
    assert bool(types.type_id(kind, name)) is (there and name != "nf_hook_state")


def test_names_of_a_kind_come_once(types: KernelTypes) -> None:
    assert types.names("struct")[:2] == ["task", "bpf_iter__task"]
    assert types.names("enum") == ["colour", "wide", "alpha_run_mode", "nf_hook_mode"]
    assert len(types.names("struct")) == len(set(types.names("struct")))


@pytest.mark.parametrize(
    ("name", "enum", "value"),
    [("RED", "colour", 0), ("BLUE", "colour", 7), ("BIG", "wide", 1 << 40), ("NF_HOOK_ON", "nf_hook_mode", 3)],
)
def test_members_of_enumerations(types: KernelTypes, name: str, enum: str, value: int) -> None:
    found = types.enumerator(name)
    assert found is not None
    assert isinstance(found[0], Enum)
    assert (found[0].name, found[1]) == (enum, value)


def test_other_names_are_no_members(types: KernelTypes) -> None:
    assert types.enumerator("colour") is None
    assert types.enumerator("ED") is None, "the tail of a member"


@pytest.mark.parametrize("name", ["BLUE", "NF_HOOK_ON", "O_CREAT"])
def test_strings_are_searched_once_for_a_member(types: KernelTypes, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    searched = []

    def search(btf: Btf, wanted: str) -> Iterator[int]:
        searched.append(btf.name)
        return real(btf, wanted)

    real = Btf.string_offsets
    monkeypatch.setattr(Btf, "string_offsets", search)
    first = types.enumerator(name)
    assert "vmlinux" in searched
    times = len(searched)
    assert types.enumerator(name) == first
    assert len(searched) == times


# ---------------------------------------------------------------------------------------------- functions


def test_a_function_of_the_kernel_comes_before_that_of_a_module(types: KernelTypes) -> None:
    found = types.function("both")
    assert found is not None
    assert (found.module, found.parameters) == ("vmlinux", (("n", INT64),))
    other = types.function("both", "nf")
    assert other is not None
    assert (other.module, other.result) == ("nf", VOID)
    assert types.function("nf_hook", "alpha") is None
    assert types.function("missing") is None


def test_functions_by_pattern_are_sorted(types: KernelTypes) -> None:
    assert [(item.name, item.module) for item in types.functions("*")] == [
        ("__bpf_trace_switch", "vmlinux"), ("__traceiter_switch", "vmlinux"), ("alpha_run", "alpha"),
        ("both", "alpha"), ("both", "nf"), ("both", "vmlinux"), ("nf_hook", "nf"), ("vfs_read", "vmlinux"),
        ("vfs_write", "vmlinux"),
    ]  # fmt: skip
    assert [item.name for item in types.functions("vfs_read")] == ["vfs_read"]
    assert [item.module for item in types.functions("both", "a*")] == ["alpha"]
    assert types.functions("nothing*") == []


def test_names_of_functions_by_module(types: KernelTypes) -> None:
    assert types.function_names("*o*") == {"vmlinux": ["both"], "alpha": ["both"], "nf": ["nf_hook", "both"]}
    assert types.function_names("vfs_*", "vmlinux") == {"vmlinux": ["vfs_read", "vfs_write"]}
    assert types.function_names("both", "missing") == {}


# ---------------------------------------------------------------------------------------------- events, iterators


def test_raw_tracepoints(types: KernelTypes) -> None:
    assert types.raw_tracepoints("switch") == [("vmlinux", "switch")]
    assert types.raw_tracepoints("*n*e*") == [
        ("vmlinux", "named"), ("vmlinux", "nameless"), ("nf", "nf_event"),
    ]  # fmt: skip
    assert types.raw_tracepoints("nothing") == types.raw_tracepoints("nothing*") == []


@pytest.mark.parametrize(
    ("event", "names", "owner"),
    [
        ("named", ["prev"], "vmlinux"),
        # The first function has another number of parameters.
        ("switch", ["from", "to"], "vmlinux"),
        ("nameless", ["arg0", "kept"], "vmlinux"),
        ("nf_event", ["own"], "nf"),
    ],
)
def test_parameters_of_raw_tracepoints(types: KernelTypes, event: str, names: list[str], owner: str) -> None:
    found = types.raw_tracepoint(event)
    assert found is not None
    assert found[0].btf.name == owner
    assert found[2] == names
    prototype = types.raw_tracepoint_prototype(event)
    assert prototype is not None
    assert (prototype.name, prototype.module, [name for name, _ in prototype.parameters]) == (event, owner, names)


def test_types_of_raw_tracepoints_are_those_of_the_typedef(types: KernelTypes) -> None:
    prototype = types.raw_tracepoint_prototype("switch")
    assert prototype is not None
    assert prototype.parameters == (("from", INT32), ("to", INT64))
    assert types.raw_tracepoint("missing") is types.raw_tracepoint_prototype("missing") is None


def test_iterators(types: KernelTypes) -> None:
    assert types.iterator_names() == ["alpha_event", "nf_event", "task"]
    found = types.iterators()
    assert sorted(found) == ["alpha_event", "nf_event", "task"]
    member = found["task"].find("task")
    assert isinstance(found["task"], Struct)
    assert member is not None
    assert member.type == Pointer(VOID, AddressSpace.KERNEL)


# ---------------------------------------------------------------------------------------------- long lists


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Notes when lists are made."""
    calls: list[str] = []
    make = KernelTypes._make_lists

    def counted(types: KernelTypes) -> dict[str, list[str]]:
        calls.append(types.path)
        return make(types)

    monkeypatch.setattr(KernelTypes, "_make_lists", counted)
    return calls


def test_lists_are_made_again_when_a_module_is_loaded(folder: Path, made: list[str]) -> None:
    path = str(folder / "vmlinux")
    for _ in range(2):
        assert KernelTypes(path).function_names("*_hook") == {"vmlinux": [], "alpha": [], "nf": ["nf_hook"]}
    assert made == [path]
    (folder / "later").write_bytes(module(vmlinux(), "later_hook", "later"))
    assert KernelTypes(path).function_names("*_hook")["later"] == ["later_hook"]
    assert len(made) == 2


def test_lists_of_another_file_are_made_again_when_it_changes(folder: Path, tmp_path: Path, made: list[str]) -> None:
    other = tmp_path / "other"
    other.write_bytes(vmlinux())
    assert KernelTypes(str(other)).iterator_names() == ["task"]
    assert KernelTypes(str(other)).iterator_names() == ["task"]
    assert len(made) == 1
    builder = BtfBuilder()
    builder.struct("bpf_iter__map", 8, ("x", builder.integer("int", 4), 0))
    other.write_bytes(builder.build())
    assert KernelTypes(str(other)).iterator_names() == ["map"]


# ---------------------------------------------------------------------------------------------- loaded programs


class Types:
    """Type information of one program."""

    def type_name(self, number: int) -> str:
        return f"function_{number}"


def test_a_program_that_is_unloaded_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type information is there as long as it is held open itself."""
    held = []

    def open_by_id(kind: str, number: int) -> int:
        assert (kind, number) == ("prog", 5)
        held.append(os.open(tmp_path, os.O_RDONLY))
        return held[-1]

    def types(number: int) -> Types:
        assert number == 7
        try:
            os.fstat(held[-1])
        except OSError:
            raise FileNotFoundError(errno.ENOENT, "no such object") from None
        return Types()

    information = bytearray(232)
    struct.pack_into("=IIQI", information, 128, 7, 8, 0, 2)
    monkeypatch.setattr(bpf, "open_by_id", open_by_id)
    monkeypatch.setattr(bpf, "info_size", lambda descriptor, most: most)
    monkeypatch.setattr(bpf, "info", lambda descriptor, size: bytes(information))
    monkeypatch.setattr(kernel_types, "_function_records", lambda descriptor, count, size: [1, 2])
    monkeypatch.setattr(kernel_types, "program_types", types)
    assert kernel_types.functions_of_program(5) == ["function_1", "function_2"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held[-1])


def test_a_program_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(kind: str, number: int) -> int:
        raise FileNotFoundError(errno.ENOENT, kind)

    monkeypatch.setattr(bpf, "open_by_id", gone)
    assert kernel_types.functions_of_program(5) == []


def test_a_user_who_may_not_list_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: str) -> list[int]:
        raise PermissionError(errno.EPERM, kind)

    monkeypatch.setattr(bpf, "ids", refuse)
    with pytest.raises(TraceError) as caught:
        kernel_types.program_functions()
    assert "CAP_SYS_ADMIN" in caught.value.hints[0]
