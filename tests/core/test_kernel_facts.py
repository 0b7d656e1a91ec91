"""The form of facts about a machine: what equal ones have in common, and what is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytrace.core import kernel_facts
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_facts import Facts, decoded, digest
from tests.support.rows import each_row

SAID: dict[str, Any] = {
    "machine": "x86_64", "release": "6.1.0-56-amd64", "build": ("kernel",), "cpus": 4, "features": ("btf",),
    "btf": b"x", "modules": {"nf": b"y", "ext4": b"z"},
    "answers": ((("kernel_symbol", "jiffies"), ("1",)), (("modules",), ("nf",))),
}  # fmt: skip


def test_equal_facts_have_one_digest() -> None:
    facts = Facts(**SAID)
    assert decoded(facts.encoded()) == facts
    again = Facts(**SAID | {"modules": {"ext4": b"z", "nf": b"y"}})
    assert digest(again.encoded()) == digest(facts.encoded())
    assert len(digest(b"")) == 64
    for name, value in (("btf", b"y"), ("cpus", 8), ("answers", ()), ("modules", {"nf": b"y"}), ("release", "6.2")):
        assert digest(Facts(**SAID | {name: value}).encoded()) != digest(facts.encoded()), name


@each_row(
    ("name", "value"),
    [
        ("release", "../../etc"), ("release", ""), ("release", "6.1\n"), ("machine", "x86-64/"), ("cpus", 0),
        ("cpus", 1 << 20), ("cpus", "4"), ("btf", "text"), ("modules", {"../vmlinux": b""}), ("features", ["x"] * 1000),
        ("answers", [[[], []]]), ("answers", [[["a", "b", "c", "d", "e"], []]]), ("answers", [[["a"], [5]]]),
    ],
)  # fmt: skip
def test_what_is_none(name: str, value: object) -> None:
    """A release becomes a part of paths."""
    said = msgspec.msgpack.encode(SAID | {name: value})
    with pytest.raises(TraceError, match="the facts about a kernel are damaged"):
        decoded(said)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91" * 5000, b"\xdb\xff\xff\xff\xff", Facts(**SAID).encoded()[:-1]])
def test_damage(data: bytes) -> None:
    with pytest.raises(TraceError, match="the facts about a kernel are damaged"):
        decoded(data)


def test_what_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="a name that is no text"):
        Facts(**SAID | {"answers": ((("cgroup_id", "\udcff"), ()),)}).encoded()
    monkeypatch.setattr(kernel_facts, "LARGEST", 50)
    with pytest.raises(TraceError, match="more than are sent"):
        Facts(**SAID).encoded()
