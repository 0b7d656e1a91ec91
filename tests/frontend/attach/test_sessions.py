"""Entry and return blocks of the same kernel functions become one session."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace.core.kernel_info import KernelFunction
from pytrace.core.types import INT32, UINT64, Field, Struct
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel, function

_PLAIN = RecordedKernel()
SESSIONS = replace(
    _PLAIN,
    features=FEATURES | {"kprobe_multi", "kprobe_session"},
    prototypes=(*_PLAIN.prototypes, function("bpf_session_is_return", result=INT32)),
)


def links(text: str, **options: object) -> list[tuple[str, str]]:
    """(multi link, the program that it is part of) of each unit."""
    return [(unit.multi, unit.part_of) for unit in Expanded(text, SESSIONS, **options).units]  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["vfs_read", "vfs_*", "vfs_read,{}:do_exit"])
def test_one_entry_and_one_return(what: str) -> None:
    text = " ".join(f"{kind}:{what.format(kind)} {{ }}" for kind in ("kprobe", "kretprobe"))
    entry, leaving = Expanded(text, SESSIONS).units
    assert (entry.multi, entry.part_of) == ("kprobe_session", "")
    assert (leaving.multi, leaving.part_of) == ("kprobe_session", entry.symbol)
    assert [item.place for item in entry.targets] == [item.place for item in leaving.targets]


def test_the_order_of_the_blocks_does_not_matter() -> None:
    leaving, entry = Expanded("kretprobe:vfs_read { } kprobe:vfs_read { }", SESSIONS).units
    assert leaving.part_of == entry.symbol


@pytest.mark.parametrize(
    "text",
    [
        "kprobe:vfs_read { } kretprobe:vfs_write { }",
        "kprobe:vfs_read { } kprobe:vfs_read { } kretprobe:vfs_read { }",
        "kprobe:vfs_read { } kretprobe:vfs_read { } kretprobe:vfs_read { }",
        "kprobe:vfs_read+4 { } kretprobe:vfs_read { }",
        "kprobe:vfs_read { } kprobe:vfs_write { }",
    ],
)
def test_others_stay_apart(text: str) -> None:
    assert all(multi == "" and not part for multi, part in links(text))


def test_only_where_the_kernel_has_it_and_the_user_wants_it() -> None:
    text = "kprobe:vfs_* { } kretprobe:vfs_* { }"
    assert links(text) != [("kprobe_multi", ""), ("kprobe_multi", "")]
    assert links(text, disabled=frozenset({"kprobe_session"})) == [("kprobe_multi", ""), ("kprobe_multi", "")]
    assert [unit.multi for unit in Expanded(text).units] == ["", ""]
    unknown = replace(SESSIONS, prototypes=_PLAIN.prototypes)
    assert [unit.multi for unit in Expanded(text, unknown).units] == ["kprobe_multi", "kprobe_multi"]


def test_pools_of_older_kernels_need_many_functions() -> None:
    """Before 6.14 a session on one function that sleeps would leave out calls that a kprobe sees."""
    probe = Struct("struct", "fprobe", 8, (Field("rethook", UINT64, 0),), origin="vmlinux", alignment=8)
    names = [f"pooled_{number}" for number in range(16)]
    kernel = replace(
        SESSIONS,
        structs={**SESSIONS.structs, ("struct", "fprobe"): probe},
        traceable=(*SESSIONS.traceable, *(KernelFunction(name) for name in names)),
    )

    def multi(what: str) -> list[str]:
        text = f"kprobe:{what} {{ }} kretprobe:{what} {{ }}"
        return [unit.multi for unit in Expanded(text, kernel).units]

    assert multi("vfs_read") == ["", ""]
    assert multi("pooled_*") == ["kprobe_session", "kprobe_session"]
