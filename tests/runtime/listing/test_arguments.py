"""pytrace.runtime.listing.arguments: arguments of each kind of probe as text, from facts made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from pytrace.core.kernel_info import TracepointField, UserParameter
from pytrace.core.probes.kinds import (
    FENTRY,
    FEXIT,
    INTERVAL,
    ITER,
    KPROBE,
    KRETPROBE,
    RAWTRACEPOINT,
    TRACEPOINT,
    UPROBE,
)
from pytrace.core.probes.targets import (
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
from pytrace.runtime.btf.kernel import KernelTypes
from pytrace.runtime.btf.reader import Btf, Kind
from pytrace.runtime.btf.value_types import TypeReader
from pytrace.runtime.listing import arguments
from tests.support.btf_builder import BtfBuilder


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

    def user_parameters(self, path: str, symbol: str) -> tuple[UserParameter, ...] | None:
        assert symbol, "an address has no parameters to ask for"
        return (UserParameter("n", INT32, "di", "const int"),) if (path, symbol) == ("/bin/app", "work") else None


OPEN = ["struct file * path", "int arg1"]


@pytest.mark.parametrize(
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
    assert arguments.of(kernel, kind, place) == expected


@pytest.mark.parametrize("kind", [TRACEPOINT, KPROBE, FENTRY, FEXIT, RAWTRACEPOINT, ITER, UPROBE])
def test_a_place_of_another_shape_has_none(kind: str) -> None:
    kernel: Any = Facts()
    assert arguments.of(kernel, kind, NoTarget()) == []


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
    assert arguments.of(kernel, kind, place) == []
    assert arguments.definition(kernel, "struct", "file") == []


def test_definitions_by_word_and_name() -> None:
    kernel: Any = Facts()
    assert arguments.definition(kernel, "struct", "file") == ["vmlinux: struct file {", "\tint f_flags;", "};"]
    assert arguments.definition(kernel, "enum", "file") == ["vmlinux: enum file {", "\tFILE_ON = 1,", "};"]
    assert arguments.definition(kernel, "union", "file") == []
