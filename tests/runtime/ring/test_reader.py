"""Reading the ring, with a file in the kernel's place: mixed kinds in order, slices, memory that has a bound."""

from __future__ import annotations

import mmap
import os
import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from pytrace.core.event_layout import EventLayout
from pytrace.core.types import UINT32, UINT64, String
from pytrace.render.events.event_decoder import Formatter, RunHandler, Tally, Texts, each
from pytrace.render.events.printf import compile_pieces
from pytrace.runtime.abi import bpf
from pytrace.runtime.ring import reader as ringbuffer
from pytrace.runtime.ring.index import BUSY
from pytrace.runtime.ring.reader import COLLECT, RingReader
from tests.support.encode import Run
from tests.support.ring_work import counted

PAGE = mmap.PAGESIZE
SIZE = 1 << 16
"""Bytes of the ring."""


class Ring:
    """What the kernel would do: records are written twice, as the second mapping of the data would show them."""

    def __init__(self, stack: ExitStack, patch: pytest.MonkeyPatch, size: int = SIZE) -> None:
        self.size = size
        self.file = os.memfd_create("ring")
        stack.callback(os.close, self.file)
        os.truncate(self.file, 2 * PAGE + 2 * size)
        patch.setattr(bpf, "map_info", lambda _: (0, 0, 0, 0, size))
        self.produced = 0
        self.refused = 0

    @property
    def consumed(self) -> int:
        found: int = struct.unpack("=Q", os.pread(self.file, 8, 0))[0]
        return found

    def send(self, *payloads: bytes, flags: int = 0) -> None:
        for payload in payloads:
            record = struct.pack("=II", len(payload) | flags, 0) + payload + bytes(-len(payload) % 8)
            if self.produced + len(record) - self.consumed > self.size:
                self.refused += 1
                continue
            place = self.produced % self.size
            for start in (place, place + self.size, place - self.size):
                if start > -len(record):
                    cut = record[max(0, -start) :]
                    os.pwrite(self.file, cut[: 2 * self.size - max(0, start)], 2 * PAGE + max(0, start))
            self.produced += len(record)
        os.pwrite(self.file, struct.pack("=Q", self.produced), PAGE)


def event(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("=II", kind, 0) + body


FORMATS = (
    (b"zero %d\n", (UINT64,)), (b"one %s\n", (String(16),)), (b"two %d %d\n", (UINT32, UINT32)), (b"three\n", ()),
)  # fmt: skip


def sample(kind: int, number: int) -> tuple[bytes, bytes]:
    """An event, and the text that it prints."""
    if kind == 0:
        return event(0, struct.pack("=Q", number)), b"zero %d\n" % number
    if kind == 1:
        return event(1, b"n%d" % number + bytes(16 - len(b"n%d" % number))), b"one n%d\n" % number
    if kind == 2:
        return event(2, struct.pack("=II", number, 7)), b"two %d 7\n" % number
    return event(3), b"three\n"


class Printed:
    """Handlers of :data:`FORMATS`, and what they printed."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.calls = 0
        run = Run()
        self.handlers: list[RunHandler] = []
        for form, kinds in FORMATS:
            pieces = compile_pieces(form, kinds, run.renderer._context.texts)
            formatter = Formatter(EventLayout(kinds), run.renderer._context.decoders, pieces)
            self.handlers.append(Texts(formatter, self.extend, quick=True))

    def extend(self, texts: list[bytes]) -> None:
        self.calls += 1
        self.texts += texts


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


CHOOSE = random.Random(2)
ORDERS: dict[str, Sequence[int]] = {
    "one kind": [0] * 1200,
    "two in turn": [0, 1] * 600,
    "four in turn": [0, 1, 2, 3] * 300,
    "at random": CHOOSE.choices(range(4), k=1200),
    "one in a hundred": ([0] * 99 + [1]) * 12,
}


@pytest.mark.parametrize("first", [PAGE, 1 << 20])
@pytest.mark.parametrize("order", ORDERS)
def test_texts_come_in_the_order_of_events(
    order: str, first: int, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ringbuffer, "FIRST", first)
    ring, work = Ring(stack, monkeypatch), counted(monkeypatch)
    reader, printed = RingReader(ring.file, stack), Printed()
    wanted = []
    for turn in range(5):
        made = [sample(kind, 1000 * turn + number) for number, kind in enumerate(ORDERS[order])]
        ring.send(*[data for data, _ in made])
        wanted += [text for _, text in made]
        assert reader.drain(printed.handlers) == len(made)
    assert ring.refused == 0
    assert printed.texts == wanted
    assert ring.consumed == ring.produced == reader.handled
    # Slices, not events: what is handled together does not depend on the order of kinds.
    assert printed.calls <= work.slices < 150
    assert len(wanted) <= work.looks < 4 * len(wanted)


@pytest.mark.parametrize("discard", [False, True])
def test_all_of_the_ring_is_mapped_when_events_get_there(
    discard: bool, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ringbuffer, "FIRST", PAGE)
    ring = Ring(stack, monkeypatch)
    reader, printed = RingReader(ring.file, stack), Printed()
    lengths: list[int] = []
    make = mmap.mmap

    def mapped(file: int, length: int, flags: int, protection: int, *, offset: int) -> mmap.mmap:
        lengths.append(length)
        return make(file, length, flags, protection, offset=offset)

    def handled() -> int:
        if not discard:
            return reader.drain(printed.handlers)
        before = reader.discarded
        reader.discard()
        return reader.discarded - before

    monkeypatch.setattr(mmap, "mmap", mapped)
    fits = PAGE // 24
    ring.send(*[sample(0, number)[0] for number in range(fits)])
    assert handled() == fits
    assert not lengths
    ring.send(*[sample(0, number)[0] for number in range(20)])
    assert handled() == 20
    assert lengths == [PAGE + 2 * SIZE]
    assert ring.consumed == ring.produced


def test_what_is_not_a_text_keeps_its_place_among_texts(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(stack, monkeypatch)
    reader, printed = RingReader(ring.file, stack), Printed()
    printed.handlers[2] = each(lambda data, offset: printed.texts.append(b"map %d\n" % data[offset + 8]))
    for kinds in ([0, 2] * 100, CHOOSE.choices(range(4), k=200), [2] * 100):
        printed.texts.clear()
        made = [sample(kind, number % 200) for number, kind in enumerate(kinds)]
        ring.send(*[data for data, _ in made])
        assert reader.drain(printed.handlers) == len(kinds)
        assert printed.texts == [
            b"map %d\n" % (number % 200) if kind == 2 else text
            for number, (kind, (_, text)) in enumerate(zip(kinds, made, strict=True))
        ]


def test_handlers_that_change_among_others(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after exit(): what comes later is counted, to the event."""
    ring = Ring(stack, monkeypatch)
    reader, printed = RingReader(ring.file, stack), Printed()
    ignored = 0

    def ignore(count: int) -> None:
        nonlocal ignored
        ignored += count

    def leave(*_: object) -> None:
        printed.handlers[:] = [Tally(ignore)] * 4

    printed.handlers[3] = leave
    for kinds, after in (([0, 1] * 300 + [3] + [0, 1] * 200, 400), (CHOOSE.choices(range(3), k=500) + [3, 0, 2], 2)):
        printed = Printed()
        printed.handlers[3] = leave
        ignored = 0
        ring.send(*[sample(kind, 1)[0] for kind in kinds])
        assert reader.drain(printed.handlers) == len(kinds)
        assert ignored == after
        assert len(printed.texts) == len(kinds) - after - 1


def test_enough_is_asked_after_each_slice(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(stack, monkeypatch)
    reader, printed = RingReader(ring.file, stack), Printed()
    ring.send(*[sample(kind, 1)[0] for kind in ORDERS["at random"]])
    counts = []
    while reader.pending:
        counts.append(reader.drain(printed.handlers, enough=lambda: True))
    assert len(counts) > 2
    assert sum(counts) == len(ORDERS["at random"]) == len(printed.texts)


def test_slices_of_slow_events_get_short(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(stack, monkeypatch)
    reader = RingReader(ring.file, stack)
    now = 0.0
    taken: list[int] = []

    def slow(_data: bytes, _offset: int, _length: int, _stride: int, count: int) -> None:
        nonlocal now
        now += 0.001 * count
        taken.append(count)

    monkeypatch.setattr("pytrace.runtime.ring.reader.time.monotonic", lambda: now)
    ring.send(*[sample(0, 1)[0]] * 1000)
    reader.drain([slow])
    assert sum(taken) == 1000
    assert max(taken[5:]) <= 4


@pytest.mark.parametrize("order", ["one kind", "two in turn", "at random"])
def test_the_backlog_has_a_limit_with_its_index(order: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(stack, monkeypatch, 1 << 20)
    limit = 1 << 20
    reader, printed = RingReader(ring.file, stack, backlog=limit), Printed()
    kinds = ORDERS[order]
    sent = 0
    for _ in range(120):
        ring.send(*[sample(kind, 1)[0] for kind in kinds])
        sent += len(kinds)
        reader.collect()
    assert ring.refused > 0
    assert reader.peak_backlog <= limit + 2 * COLLECT
    held = reader.handled
    assert held == 0
    assert reader.drain(printed.handlers) + ring.refused == sent
    assert len(printed.texts) + ring.refused == sent


def test_what_is_discarded_is_counted(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(stack, monkeypatch)
    reader, printed = RingReader(ring.file, stack), Printed()
    for kinds in ORDERS.values():
        ring.send(*[sample(kind, 1)[0] for kind in kinds])
        handled = reader.drain(printed.handlers, enough=lambda: True)
        before = reader.discarded
        reader.discard()
        assert handled + reader.discarded - before == len(kinds)
        assert not reader.pending


def test_an_awaited_event_is_noticed_before_it_is_handled(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    for kinds in ([0, 1] * 200, CHOOSE.choices(range(3), k=400)):
        ring = Ring(stack, monkeypatch)
        reader = RingReader(ring.file, stack)
        told: list[bool] = []

        def note(told: list[bool] = told, reader: RingReader = reader) -> None:
            told.append(reader.pending)

        reader.notice({3}, note)
        ring.send(*[sample(kind, 1)[0] for kind in kinds])
        reader.collect()
        early = reader.noticed
        assert not early
        ring.send(sample(3, 1)[0])
        reader.collect()
        assert reader.noticed
        assert reader.handled == 0
        ring.send(sample(3, 1)[0])
        reader.collect()
        assert told == [True]


def test_an_unfinished_record_holds_up_what_comes_after_it(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(stack, monkeypatch)
    reader, printed = RingReader(ring.file, stack), Printed()
    ring.send(*[sample(kind, 1)[0] for kind in [0, 1] * 100])
    ring.send(sample(0, 2)[0], flags=BUSY)
    ring.send(sample(0, 3)[0])
    assert reader.drain(printed.handlers) == 200
    assert reader.pending
    assert reader.drain(printed.handlers) == 0
