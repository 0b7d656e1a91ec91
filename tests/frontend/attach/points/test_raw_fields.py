"""Fields of tracepoints at raw tracepoints, as far as type information confirms them."""

from __future__ import annotations

import re
from dataclasses import replace

from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.types import INT32, INT64, UINT64, VOID, Field, Pointer, String, Struct, Type
from pytrace.frontend.probes.tracepoints import FORMULAS, STRUCTS, TABLE, raw_places, shape
from pytrace.frontend.syntax.typed_program import RawField, RawRead
from tests.support.facts import RecordedKernel, event, tracepoint_field

TASK = Struct(
    "struct", "task_struct", 64,
    (Field("pid", INT32, 0), Field("prio", INT32, 4), Field("comm", String(16), 8), Field("cpu", INT32, 24)),
    origin="vmlinux", alignment=8,
)  # fmt: skip
FIELDS = event(
    tracepoint_field("comm", String(16), 8), tracepoint_field("pid", INT32, 24), tracepoint_field("prio", INT32, 28),
    tracepoint_field("target_cpu", INT32, 32), tracepoint_field("success", INT32, 36),
)  # fmt: skip


def kernel(argument: Type, name: str = "p", module: str = "vmlinux") -> RecordedKernel:
    prototype = FunctionPrototype("sched_waking", module, ((name, argument),), VOID)
    return replace(RecordedKernel(), raw={"sched_waking": prototype})


def known(facts: RecordedKernel, *, trusted: bool = True) -> dict[str, object]:
    return dict(raw_places("sched", "sched_waking", FIELDS, facts, trusted))


def test_members_of_an_argument() -> None:
    assert known(kernel(Pointer(TASK))) == {
        "comm": RawField("text", (RawRead(0, (8,), 0, direct=True),)),
        "pid": RawField("value", (RawRead(0, (0,), 4, True, True),)),
        "prio": RawField("value", (RawRead(0, (4,), 4, True, True),)),
        "target_cpu": RawField("value", (RawRead(0, (24,), 4, True, True),)),
    }
    place = known(kernel(Pointer(TASK)), trusted=False)["pid"]
    assert place == RawField("value", (RawRead(0, (0,), 4, True, False),))


def test_arguments_of_another_name_type_or_module() -> None:
    other = Struct("struct", "file", 64, TASK.fields, origin="vmlinux", alignment=8)
    assert known(kernel(Pointer(TASK), "task")) == {}
    assert known(kernel(Pointer(other))) == {}
    assert known(kernel(UINT64)) == {}
    assert known(kernel(Pointer(TASK), module="other")) == {}


def test_members_of_another_size() -> None:
    wide = Struct("struct", "task_struct", 64, (Field("pid", INT64, 0), Field("comm", String(32), 8)), origin="vmlinux")
    assert known(kernel(Pointer(wide))) == {}


def test_tracepoints_that_are_not_in_the_table() -> None:
    assert raw_places("sched", "made_up", FIELDS, kernel(Pointer(TASK)), True) == {}


def test_shapes() -> None:
    assert (shape(INT32), shape(UINT64), shape(TASK)) == ((4, True), (8, False), None)


def test_expressions() -> None:
    for place, row in TABLE.items():
        for name, sources in row.items():
            for source in sources:
                match = re.fullmatch(r"(?:(\w+)\()?([^()]+)\)?", source)
                assert match is not None, (place, name)
                paths = match[2].split(", ")
                if match[1]:
                    assert len(paths) == len(FORMULAS[match[1]].operands), (place, name)
                for path in paths:
                    root = re.split(r"->|\.", path)[0]
                    assert root in STRUCTS or root == path, (place, name)


def test_a_state_that_a_function_computes_is_not_in_it() -> None:
    assert "prev_state" not in TABLE["sched", "sched_switch"]
