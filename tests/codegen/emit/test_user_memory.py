"""Reads that fail: repeated where the program may sleep, marked if the script wants that."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.codegen.emit.program import COPIES
from pytrace.core.kernel_info import KernelFunction
from pytrace.core.options import CompileOptions
from pytrace.core.types import UINT64
from tests.codegen.running import compiled, machine
from tests.support.bpf_machine import FAULT, Machine, _read, _read_string
from tests.support.facts import FEATURES, RecordedKernel, function

MARKED = "config = { mark_unreadable = true } "
COPY_FROM_USER = 148


def sleepable() -> RecordedKernel:
    """A kernel whose programs of user probes may sleep."""
    return RecordedKernel(features=FEATURES | {"sleepable_uprobe", "bpf_loop", "for_each_map_elem"})


class Cold:
    """User memory whose pages arrive when ``bpf_copy_from_user`` touches them."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.machine: Any = None
        self.resident: set[int] = set()
        self.touched: list[int] = []
        self.start = 0

    def _covers(self, address: int, size: int) -> bool:
        pages = range(address >> 12, (address + size - 1 >> 12) + 1)
        return all(page in self.resident for page in pages)

    def touch(self, target: int, size: int, source: int, *rest: int) -> int:
        self.touched.append((source & 0xFFFFFFFF) >> 12)
        if _read(self.machine, target, size, source, *rest) < 0:
            return FAULT
        self.resident |= set(range(source >> 12, (source + size - 1 >> 12) + 1))
        return 0

    def string(self, target: int, size: int, source: int, *rest: int) -> int:
        end = self.text.find(b"\0", source & 0xFFFFFFFF) + 1 - (source & 0xFFFFFFFF)
        resident = end > 0 and self._covers(source, min(end, size))
        return _read_string(self.machine, target, size, source, *rest) if resident else FAULT

    def bytes(self, target: int, size: int, source: int, *rest: int) -> int:
        return _read(self.machine, target, size, source, *rest) if self._covers(source, size) else FAULT


def _ran(body: str, text: bytes, place: int, prefix: str = "", **state: Any) -> tuple[Machine, Cold]:
    """A probe of a user function whose first argument points to *place* of *text*, and the memory."""
    cold = Cold(text)
    helpers = {112: cold.bytes, 114: cold.string, COPY_FROM_USER: cold.touch}
    found = machine(f"{prefix}uprobe:/bin/app:work {{ {body} }}", sleepable(), helpers=helpers, **state)
    cold.machine = found
    context = bytearray(168)
    context[112:120] = (found.region(text) + place).to_bytes(8, "little")
    found.run(context=bytes(context))
    return found, cold


def _page(text: bytes, place: int, size: int = 1 << 14) -> bytes:
    return (bytes(place) + text).ljust(size, b"\0")


@pytest.mark.parametrize(
    ("text", "place", "touched"),
    [(b"abc", 100, [0]), (b"x" * 50, 4090, [0, 1]), (b"y" * 1000, 4095, [0, 1]), (b"abc", 4092, [0])],
)
def test_a_string_is_read_again_when_its_pages_are_there(text: bytes, place: int, touched: list[int]) -> None:
    """Pages after the first are touched only if the string goes on there."""
    found, cold = _ran("print(str(arg0));", _page(text, place), place)
    assert found.printed() == [text]
    assert cold.touched == touched


def test_a_string_over_many_pages() -> None:
    text = b"z" * 10000
    found, cold = _ran("print(str(arg0));", _page(text, 10), 10, "config = { max_strlen = 12000 } ")
    assert found.printed() == [text]
    assert cold.touched == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("print(str(arg0, 4));", b"abcd"), ("$n = arg0 & 4; print(str(arg0, $n));", b"abcd"),
        ("print(*(uint32 *)arg0);", 0x64636261), ("@[str(arg0)] = 1; for ($kv : @) { print($kv.0); }", b"abcdef"),
        ("print(strlen((char *)arg0));", 6), ("@ = str(arg0); $s = @; print($s);", b"abcdef"),
        ("print((1, str(arg0, 6)));", (1, b"abcdef")),
    ],
)  # fmt: skip
def test_all_that_reads_is_repeated(body: str, wanted: object) -> None:
    found, cold = _ran(body, _page(b"abcdef", 4), 4)
    assert found.printed() == [wanted]
    assert cold.touched
    assert found.counts().get("waiting", 0) % 2**64 == 0, "it has been counted, and has ended"
    assert found.script.manifest.programs[0].sleepable


def test_a_read_that_succeeds_does_not_sleep() -> None:
    found = machine("uprobe:/bin/app:work { print(str(arg0)); }", sleepable())
    context = bytearray(168)
    context[112:120] = found.region(b"abc\0").to_bytes(8, "little")
    found.run(context=bytes(context))
    assert COPY_FROM_USER not in {number for number, _ in found.calls}


def test_the_last_copy_of_scratch_memory_is_not_held_in_sleep() -> None:
    """Other programs of the CPU would miss their hits for as long as a page takes to arrive."""
    cold = Cold(_page(b"abc", 4))
    found = machine(
        "uprobe:/bin/app:work { print(str(arg0)); }", sleepable(), helpers={114: cold.string, 148: cold.touch}
    )
    cold.machine = found
    context = bytearray(168)
    context[112:120] = (found.region(cold.text) + 4).to_bytes(8, "little")
    copies: list[int] = []
    atomic = found._atomic

    def noted(place: int, *rest: Any) -> None:
        copies.append(place)
        atomic(place, *rest)

    found._atomic = noted  # type: ignore[method-assign]
    found.run(context=bytes(context))
    assert cold.touched
    cold.resident.clear()
    cold.touched.clear()
    found.write(copies[0], ((1 << COPIES - 1) - 1).to_bytes(8, "little"))
    found.run(context=bytes(context))
    assert cold.touched == []
    assert found.printed() == [b"abc", b""]


@pytest.mark.parametrize(
    "text",
    [
        "uprobe:/bin/app:work { print(arg0); }",
        "kprobe:vfs_read { print(str(uptr(arg0))); }",
        "uprobe:/bin/app:work { $a = arg0; for ($kv : @n) { print(str($a)); } @n[1] = 1; }",
        "fn f($x: uint64) : void { print(str($x)); } uprobe:/bin/app:work { f(arg0); }",
        "uprobe:/bin/app:work { @[str(arg0)] = count(); } interval:s:1 { print(@); clear(@); }",
        "uprobe:/bin/app:work { @[str(arg0)] = count(); } interval:s:1 { clear(@); }",
    ],
)
def test_programs_that_must_not_sleep(text: str) -> None:
    """Nothing to read, another kind of probe, a loop over a map, a function, a map in two buffers, or with digests."""
    assert not any(item.sleepable for item in compiled(text, sleepable()).manifest.programs)


def test_which_programs_sleep() -> None:
    for text in ("@[str(arg0)] = count();", "@[(1, str(arg0, 8))] = count();"):
        script = compiled(f"uprobe:/bin/app:work {{ {text} }}", sleepable(), CompileOptions(live=True))
        assert script.manifest.maps[0].inner is not None
        assert script.manifest.programs[0].sleepable
    kernel = RecordedKernel()
    assert not compiled("uprobe:/bin/app:work { print(str(arg0)); }", kernel).manifest.programs[0].sleepable
    ahead = CompileOptions(ahead=True)
    script = compiled("uprobe:/bin/app:work { print(str(arg0)); }", sleepable(), ahead)
    assert not script.manifest.programs[0].sleepable


@pytest.mark.parametrize(
    ("script", "sleeps"),
    [
        ("fentry:do_open { print(str(uptr(args.name))); }", True),
        ("fexit:do_open { @[str(uptr(args.name))]++; }", True),
        ("fentry:do_open { print(args.name); }", False),
        ("fentry:do_close { print(str(uptr(args.name))); }", False),
        ("kprobe:do_open { print(str(uptr(arg0))); }", False),
    ],
)  # fmt: skip
def test_programs_of_functions_that_may_fail_sleep(script: str, sleeps: bool) -> None:
    names = ("do_open", "do_close")
    kernel = sleepable()
    kernel.features |= {"sleepable_fentry"}
    kernel.sleepable_functions = frozenset({"do_open"})
    kernel.prototypes = tuple(function(name, ("name", UINT64)) for name in names)
    kernel.traceable = tuple(map(KernelFunction, names))
    assert compiled(script, kernel).manifest.programs[0].sleepable == sleeps
    kernel.features -= {"sleepable_fentry"}
    assert not compiled(script, kernel).manifest.programs[0].sleepable


def test_an_iterator_reads_the_memory_of_its_task() -> None:
    """And nothing where it may not: not that of the process that reads the iterator."""
    script = "iter:task { print(str(uptr(ctx.task->pid))); print(*(uint64 *)uptr(ctx.task->pid)); }"
    kernel = RecordedKernel(features=FEATURES | {"task_memory"})
    assert compiled(script, kernel).manifest.programs[0].sleepable
    assert not compiled(script, RecordedKernel()).manifest.programs[0].sleepable
    ahead = CompileOptions(ahead=True)
    assert not compiled(script, kernel, ahead).manifest.programs[0].sleepable


def test_unreadable_values_are_marked_and_counted_when_asked() -> None:
    body = 'print(str(arg0)); print(str(arg0, 4)); print(str(0)); @[str(arg0)] = 1; '
    found, _ = _ran(body + 'print(strcontains(str(arg0), "read"));', b"no end", 0, MARKED)
    assert found.printed() == [b"<unreadable>", b"<unr", b"", True]
    assert found.entries("@") == {b"<unreadable>": 1}
    assert found.counts()["unreadable"] == 4
    found, _ = _ran("print(*(uint64 *)arg0); print(buf(arg0, 8));", b"short", 0, MARKED)
    assert found.printed()[0] == 0
    assert found.counts()["unreadable"] == 2
    found, _ = _ran("print(str(arg0));", b"no end", 0)
    assert found.printed() == [b""]
    counters = found.script.manifest.counters
    assert counters is None or "unreadable" not in {kind for kind, _ in counters.names}
