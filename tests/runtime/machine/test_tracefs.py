"""pytrace.runtime.machine.tracefs: formats of tracepoints, lists of traceable functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.kernel_info import DefinedEvent
from pytrace.core.types import (
    BOOL,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.runtime.machine import tracefs

FORMAT = """\
name: sample
ID: 782
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int dfd;\toffset:8;\tsize:8;\tsigned:0;
\tfield:const char * filename;\toffset:16;\tsize:8;\tsigned:0;
\tfield:umode_t mode;\toffset:24;\tsize:8;\tsigned:0;
\tfield:char comm[16];\toffset:32;\tsize:16;\tsigned:0;
\tfield:__u8 saddr[4];\toffset:48;\tsize:4;\tsigned:0;
\tfield:unsigned long args[6];\toffset:56;\tsize:48;\tsigned:0;
\tfield:bool done;\toffset:104;\tsize:1;\tsigned:0;
\tfield:enum state state;\toffset:108;\tsize:4;\tsigned:0;
\tfield:struct node * node;\toffset:112;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:120;\tsize:4;\tsigned:0;
\tfield:__rel_loc u64[] list;\toffset:124;\tsize:4;\tsigned:0;
\tfield:unknown_t blob;\toffset:128;\tsize:24;\tsigned:0;
\tfield:unknown_t small;\toffset:152;\tsize:4;\tsigned:1;
\tfield:const char *const * argv;\toffset:160;\tsize:8;\tsigned:0;
\tfield:void (*)(struct work *) function;\toffset:168;\tsize:8;\tsigned:0;
\tfield:long state[2];\toffset:176;\tsize:16;\tsigned:1;

print fmt: "field:char fake; offset:1; size:1;", REC->dfd
"""

STATE = Enum("state", 4, False, (("IDLE", 0),))
NODE = Struct("struct", "node", 8, ())
KNOWN = {
    ("typedef", "umode_t"): UINT16,
    ("typedef", "__u8"): UINT8,
    ("typedef", "u64"): UINT64,
    ("enum", "state"): STATE,
    ("struct", "node"): NODE,
}


def _lookup(kind: str, name: str) -> Type | None:
    return KNOWN.get((kind, name))


@pytest.fixture(scope="module")
def fields() -> dict[str, tracefs.TracepointField]:
    text = FORMAT.partition("print fmt")[0]
    return {item.name: item for item in tracefs.parse_format(text, _lookup, AddressSpace.USER)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("common_type", UINT16),
        ("common_pid", INT32),
        ("dfd", INT64),
        ("filename", Pointer(INT8, AddressSpace.USER)),
        ("mode", UINT16),
        ("comm", String(16)),
        ("saddr", Array(UINT8, 4)),
        ("args", Array(UINT64, 6)),
        ("done", BOOL),
        ("node", Pointer(NODE, AddressSpace.USER)),
        ("name", String(0)),
        ("list", Array(UINT64, 0)),
        ("blob", Array(UINT8, 24)),
        ("small", INT32),
        ("argv", Pointer(Pointer(INT8, AddressSpace.USER), AddressSpace.USER)),
        ("state", Array(INT64, 2)),
    ],
)
def test_types_of_fields(fields: dict[str, tracefs.TracepointField], name: str, kind: Type) -> None:
    assert fields[name].type == kind


def test_places_and_declarations(fields: dict[str, tracefs.TracepointField]) -> None:
    name, listed = fields["name"], fields["list"]
    assert (name.offset, name.size, name.data_loc, name.relative) == (120, 4, True, False)
    assert (listed.data_loc, listed.relative) == (True, True)
    assert name.declaration == "__data_loc char[] name"
    assert fields["filename"].declaration == "const char * filename"
    assert fields["function"].type == Pointer(VOID, AddressSpace.USER)


def test_print_format_is_no_field() -> None:
    names = [item.name for item in tracefs.parse_format(FORMAT, _lookup, AddressSpace.KERNEL)]
    assert "fake" not in names


DEFINITIONS = """\
p:probe_app/work /bin/app:0x0000000000001040 n=%di:s32 text=+0(%si):string
r16:probe_app/work__return /bin/my:app:0x1040(0x20) arg1=$retval
p:kprobes/reads ext4:ext4_read+0x10
r:kprobes/done vfs_read
p:kprobes/raw 0xffffffff81000000
e:eprobes/odd sched.sched_switch prev=$prev_pid
s:woken u64 lat
"""


@pytest.mark.parametrize("names", [("dynamic_events",), ("uprobe_events", "kprobe_events")])
def test_events_that_others_have_defined(tmp_path: Path, names: tuple[str, ...]) -> None:
    lines = DEFINITIONS.splitlines(keepends=True)
    for number, name in enumerate(names):
        (tmp_path / name).write_text("".join(lines[number :: len(names)]))
    events = tracefs.Tracepoints(str(tmp_path), lambda *_: None)
    work = events.defined("probe_app", "work")
    fetches = ("n=%di:s32", "text=+0(%si):string")
    assert work == DefinedEvent(lines[0].rstrip(), "p", "/bin/app", offset=0x1040, fetches=fetches)
    back, reads = events.defined("probe_app", "work__return"), events.defined("kprobes", "reads")
    assert back is not None
    assert (back.letter, back.path, back.offset) == ("r", "/bin/my:app", 0x1040)
    assert reads is not None
    assert (reads.letter, reads.function, reads.module, reads.offset) == ("p", "ext4_read", "ext4", 16)
    for group, name in (("kprobes", "raw"), ("eprobes", "odd")):
        other = events.defined(group, name)
        assert other is not None
        assert (other.letter, other.path, other.function) == ("", "", "")
    assert events.defined("sched", "sched_switch") is None
