"""The ring buffer: order, batches, what is lost."""

from __future__ import annotations

import mmap
import os
import random
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise, permutations
from types import FrameType

import pytest

from pytrace.core.event_layout import RECORD_HEADER, WORD, EventLayout
from pytrace.core.types import UINT32, UINT64, String, Type
from pytrace.render.events import Formatter, Tally, Texts, compile_pieces, each
from pytrace.runtime.machine import bpf
from pytrace.runtime.output import ring
from pytrace.runtime.output import ring as ringbuffer
from pytrace.runtime.output.ring import (
    BUSY,
    COLLECT,
    DISCARD,
    LEAST,
    Handlers,
    Index,
    Listed,
    Repeated,
    RingReader,
    Segment,
)
from tests.support.encode import Run, encode_event, record
from tests.support.ring_work import counted
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- reader
# Reading the ring, with a file in the kernel's place: mixed kinds in order, slices, memory that has a bound.


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
        self.handlers = Handlers()
        for form, kinds in FORMATS:
            pieces = compile_pieces(form, kinds, run.renderer.forms.texts)
            formatter = Formatter(EventLayout(kinds), run.renderer.forms.decoders, pieces)
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

    monkeypatch.setattr("pytrace.runtime.output.ring.time.monotonic", lambda: now)
    ring.send(*[sample(0, 1)[0]] * 1000)
    reader.drain(Handlers([slow]))
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


def test_a_second_ctrl_c_at_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that the exception left still have views of the ring when it is closed."""
    sent = [sample(kind, 1)[0] for kind in [0] * 80 + [0, 1, 2] * 3 + [3]]
    calls, ended = 0, False
    while not ended:
        calls += 1
        left = calls

        def look(frame: FrameType, event: str, _argument: object) -> None:
            nonlocal left
            # What the end of a generator raises goes nowhere.
            if event == "call" and frame.f_code.co_name != "<genexpr>":
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt

        with suppress(KeyboardInterrupt), ExitStack() as stack:
            ring = Ring(stack, monkeypatch)
            reader, printed = RingReader(ring.file, stack), Printed()
            ring.send(*sent)
            sys.setprofile(look)
            try:
                ended = reader.drain(printed.handlers) == len(sent)
            finally:
                sys.setprofile(None)
    assert calls > 10


# ---------------------------------------------------------------------------------------------- batches
# Events of several kinds that are handled together.


class Kinds:
    """Handlers of three kinds: a number, a short string with its NUL bytes, a text with `%` and without arguments."""

    def __init__(self, *, quick: bool = True) -> None:
        self.texts: list[bytes] = []
        made = Run().renderer.forms
        forms: tuple[tuple[bytes, tuple[Type, ...]], ...] = (
            (b"n %d\n", (UINT64,)), (b"<%-6s>\n", (String(8),)), (b"100 %%\n", ()),
        )  # fmt: skip
        self.handlers = Handlers(
            Texts(
                Formatter(EventLayout(kinds), made.decoders, compile_pieces(form, kinds, made.texts)),
                self.texts.extend, quick=quick,
            )
            for form, kinds in forms
        )  # fmt: skip


BODIES = (struct.pack("=Q", 5), b"ab\0junk!", b"")
TEXTS = (b"n 5\n", b"<ab    >\n", b"100 %\n")


def records(kinds: list[int]) -> bytes:
    found = b""
    for kind in kinds:
        payload = struct.pack("=II", kind, 0) + BODIES[kind]
        found += struct.pack("=II", len(payload), 0) + payload
    return found


def repeated(kinds: list[int]) -> tuple[bytes, Repeated]:
    data = records(kinds * 40)
    (part,), _ = Index(memoryview(data).cast("I")).segments(0, len(data))
    assert isinstance(part, Repeated)
    return data, part


def sequence(part: Repeated) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """What handlers need to know of a sequence."""
    return part.identities, part.starts, part.stride


def test_a_sequence_prints_what_its_events_print_one_by_one() -> None:
    for kinds in ([0, 1], [0, 1, 2], [2, 1], [2, 2, 0], [1, 1, 1, 0]):
        made = Kinds()
        data, part = repeated(kinds)
        group = made.handlers.sequence(*sequence(part))
        assert group is not None
        group(data, part.offset, 3)
        assert made.texts == [TEXTS[kind] for kind in kinds * 3]


def test_events_without_a_sequence_keep_their_order() -> None:
    made = Kinds()
    kinds = [0, 1, 1, 2, 0, 2, 1]
    data = records(kinds)
    places = array("I")
    place = 0
    for kind in kinds:
        places.append(place // 4)
        place += len(records([kind]))
    assert made.handlers.together(kinds) == len(kinds)
    made.handlers.handle(data, places, kinds)
    assert made.texts == [TEXTS[kind] for kind in kinds]


def test_what_is_only_counted_is_counted_together() -> None:
    made = Kinds()
    counted: list[int] = []
    made.handlers = Handlers([Tally(counted.append)] * 3)
    data, part = repeated([0, 1, 2])
    group = made.handlers.sequence(*sequence(part))
    assert group is not None
    group(data, part.offset, 7)
    assert sum(counted) == 21


def test_what_takes_long_or_does_more_is_handled_alone() -> None:
    slow, quick = Kinds(quick=False), Kinds()
    _, part = repeated([0, 1])
    assert slow.handlers.sequence(*sequence(part)) is None
    assert slow.handlers.together([0, 1]) == 0
    quick.handlers[1] = lambda *_: None
    assert quick.handlers.sequence(*sequence(part)) is None
    assert quick.handlers.together([0, 0, 1, 0]) == 2
    assert quick.handlers.together([0, 7]) == 1


def test_a_handler_that_was_replaced_is_not_used_any_more() -> None:
    made = Kinds()
    data, part = repeated([0, 1])
    assert made.handlers.sequence(*sequence(part)) is not None
    counted: list[int] = []
    made.handlers[:] = [Tally(counted.append)] * 3
    group = made.handlers.sequence(*sequence(part))
    assert group is not None
    group(data, part.offset, 4)
    assert (made.texts, sum(counted)) == ([], 8)


def test_so_many_sequences_are_compiled_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "SEQUENCES", 5)
    made = Kinds()
    orders = [list(order) for order in sorted(set(permutations([0, 0, 1, 1, 2])))]
    given = [made.handlers.sequence(*sequence(repeated(order)[1])) is not None for order in orders + orders[:7]]
    assert len(orders) > 10
    compiled = [number for number, group in enumerate(given) if group]
    assert compiled == [0, 1, 2, 3, 4, *range(len(orders), len(orders) + 5)]


# ---------------------------------------------------------------------------------------------- rows of tables


class Rows:
    """Handlers of two tables' rows and of a plain text, as a run's output makes them."""

    def __init__(self, *, csv: bool = False) -> None:
        self.run = Run(csv=csv)
        kinds: tuple[Type, ...] = (UINT64, String(8))
        first = self.run.event("row", kinds, names=["n", "name"])
        other = self.run.event("row", [UINT64], names=["m"])
        text = self.run.event("printf", [UINT64], format="text %d\n")
        for identity, values in ((first, (0, b"")), (other, (0,)), (text, (0,))):
            self.run.send(identity, *values)  # handlers are made with their first event
        self.run.printed()
        self.run.output.cuts += 1
        self.handlers = Handlers(self.run.renderer.handlers)
        self.names = (b"ok", b"a\nb", b"xyz")

    def data(self, kinds: list[int]) -> bytes:
        values: list[tuple[object, ...]] = [
            (10**10 if at == 1 else at, self.names[at % 3]) if kind == 0 else (at,) for at, kind in enumerate(kinds)
        ]
        specs = self.run.specs
        events = [encode_event(kind, specs[kind].args, value) for kind, value in zip(kinds, values, strict=True)]
        return b"".join(record(event) for event in events)

    def one_by_one(self, kinds: list[int]) -> bytes:
        place, data = 8, self.data(kinds)
        for kind in kinds:
            length = int.from_bytes(data[place - 8 : place - 4], "little")
            self.handlers[kind](data, place, length, 0, 1)
            place += 8 + (length + 7) // 8 * 8
        return self.run.printed()

    def together(self, kinds: list[int]) -> bytes:
        data = self.data(kinds)
        places, place = array("I"), 0
        while place < len(data):
            places.append(place // 4)
            place += 8 + (int.from_bytes(data[place : place + 4], "little") + 7) // 8 * 8
        done = 0
        while done < len(kinds):
            count = self.handlers.together(kinds[done:])
            self.handlers.handle(data, places[done : done + count], kinds[done : done + count])
            done += count
        return self.run.printed()

    def grouped(self, kinds: list[int], times: int) -> bytes | None:
        data = self.data(kinds * 40)
        (part,), _ = Index(memoryview(data).cast("I")).segments(0, len(data))
        assert isinstance(part, Repeated)
        group = self.handlers.sequence(*sequence(part))
        if group is None:
            return None
        group(data, part.offset, times)
        return self.run.printed()


MIXTURES = [[0, 0, 0], [0, 2], [2, 0, 2], [0, 2, 2, 0], [1, 2, 0, 1], [0, 1, 0, 0, 1, 2, 1]]


@each_row("csv", [False, True])
@each_row("kinds", MIXTURES)
def test_rows_that_are_printed_together_read_as_those_printed_one_by_one(kinds: list[int], csv: bool) -> None:
    """Only widths may differ: rows that are printed together are aligned with each other."""
    one, many = Rows(csv=csv), Rows(csv=csv)
    expected, found = one.one_by_one(kinds), many.together(kinds)
    assert [line.split() for line in found.splitlines()] == [line.split() for line in expected.splitlines()]
    assert many.run.messages == one.run.messages


@each_row("csv", [False, True])
@each_row("kinds", [[0, 2], [2, 0, 2], [0, 0, 2], [2, 2, 1], [0, 2, 0], [0, 1], [1, 2, 0, 0]])
def test_a_sequence_with_rows_has_a_function_of_its_own(kinds: list[int], csv: bool) -> None:
    one, many = Rows(csv=csv), Rows(csv=csv)
    found = many.grouped(kinds, 3)
    assert found is not None
    expected = one.one_by_one(kinds * 3)
    assert [line.split() for line in found.splitlines()] == [line.split() for line in expected.splitlines()]
    assert many.run.messages == one.run.messages


# ---------------------------------------------------------------------------------------------- index
# Where records are: found whole and in order whatever the order of kinds, and looked at a fixed number of times.


SIZES = {0: 16, 1: 24, 2: 24, 3: 40, 4: 8, 5: 1000}
"""Payload of each kind of event; two are alike."""


def index_record(kind: int, extra: int = 0, flags: int = 0) -> bytes:
    size = SIZES[kind] + extra
    payload = struct.pack("=II", kind, extra) + b"\xee" * (size - 8)
    return struct.pack("=II", size | flags, 0) + payload + bytes(-size % 8)


def data_of(kinds: list[int]) -> bytes:
    return b"".join(map(index_record, kinds))


def listed(segments: list[Segment]) -> list[tuple[int, int]]:
    """Offset of the payload and event id of each record."""
    found = []
    for part in segments:
        if isinstance(part, Repeated):
            for number in range(part.count):
                first = part.offset + number * part.stride
                found += [(first + start, kind) for start, kind in zip(part.starts, part.identities, strict=True)]
        else:
            found += [
                (place * WORD + RECORD_HEADER, kind) for place, kind in zip(part.places, part.identities, strict=True)
            ]
    return found


def expected(kinds: list[int]) -> list[tuple[int, int]]:
    found, place = [], 0
    for kind in kinds:
        found.append((place + RECORD_HEADER, kind))
        place += len(index_record(kind))
    return found


def index(data: bytes) -> Index:
    return Index(memoryview(data).cast("I"))


INDEX_CHOOSE = random.Random(1)
COUNT = 20_000
INDEX_ORDERS = {
    "one kind": [0] * COUNT,
    "two in turn": [0, 1] * (COUNT // 2),
    "two of the same length in turn": [1, 2] * (COUNT // 2),
    "five in turn": [0, 1, 2, 3, 4] * (COUNT // 5),
    "eight in turn": [0, 0, 1, 0, 2, 2, 3, 4] * (COUNT // 8),
    "nine in turn": [0, 0, 0, 0, 0, 0, 0, 0, 1] * (COUNT // 9),
    "one in a thousand": ([0] * 999 + [3]) * (COUNT // 1000),
    "one in fifty": ([0] * 49 + [3]) * (COUNT // 50),
    "two at random": INDEX_CHOOSE.choices([0, 1], k=COUNT),
    "five at random": INDEX_CHOOSE.choices(range(5), k=COUNT),
    "runs of random length": [
        kind for _ in range(900) for kind in [INDEX_CHOOSE.randrange(5)] * INDEX_CHOOSE.randrange(40)
    ],
    "sequences that change": [
        kind for _ in range(300) for kind in INDEX_CHOOSE.choices(range(5), k=3) * INDEX_CHOOSE.randrange(9)
    ],
}


@each_row("name", INDEX_ORDERS)
def test_each_record_is_found_once_and_looked_at_a_fixed_number_of_times(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = counted(monkeypatch)
    kinds = INDEX_ORDERS[name]
    data = data_of(kinds)
    found = index(data)
    segments, end = found.segments(0, len(data))
    assert listed(segments) == expected(kinds)
    assert end == len(data)
    assert len(kinds) <= work.looks < 4 * len(kinds)


@pytest.mark.parametrize("name", ["one kind", "two in turn", "five in turn", "eight in turn"])
def test_what_repeats_is_one_segment(name: str) -> None:
    data = data_of(INDEX_ORDERS[name])
    segments, _ = index(data).segments(0, len(data))
    assert isinstance(segments[0], Repeated)
    assert segments[0].records == len(INDEX_ORDERS[name])


def test_few_repetitions_are_listed() -> None:
    data = data_of([0, 1] * (LEAST // 2 - 1))
    segments, _ = index(data).segments(0, len(data))
    assert [type(part) for part in segments] == [Listed]


def test_a_part_is_found_from_where_it_starts() -> None:
    kinds = INDEX_ORDERS["five at random"][:1000]
    before, data = data_of([3, 5]), data_of(kinds)
    segments, end = index(before + data + data_of([5])).segments(len(before), len(before + data))
    assert listed(segments) == expected(kinds)
    assert end == len(before + data)


def test_the_record_at_the_end_of_a_part_belongs_to_it_as_a_whole() -> None:
    data = data_of([0, 5, 0])
    segments, end = index(data).segments(0, len(index_record(0)) + 8)
    assert listed(segments) == expected([0, 5])
    assert end == len(data_of([0, 5]))


@each_row("kinds", [[0] * 500, [0, 1] * 250, INDEX_ORDERS["five at random"][:500]])
@each_row("place", [0, 3, 16, 200, 499])
def test_an_unfinished_record_ends_it_and_a_discarded_one_is_left_out(kinds: list[int], place: int) -> None:
    before = data_of(kinds[:place])
    data = before + index_record(1, flags=BUSY) + data_of(kinds[place:])
    segments, end = index(data).segments(0, len(data))
    assert listed(segments) == expected(kinds[:place])
    assert end == len(before)
    data = before + index_record(1, flags=DISCARD) + data_of(kinds[place:])
    segments, end = index(data).segments(0, len(data))
    assert [kind for _, kind in listed(segments)] == kinds
    assert end == len(data)


def test_lengths_that_vary_within_a_kind() -> None:
    extras = [INDEX_CHOOSE.randrange(60) for _ in range(2000)]
    data = b"".join(index_record(0, extra) for extra in extras)
    segments, end = index(data).segments(0, len(data))
    places = listed(segments)
    assert len(places) == len(extras)
    assert [later - first for (first, _), (later, _) in pairwise(places)] == [
        len(index_record(0, extra)) for extra in extras[:-1]
    ]
    assert end == len(data)


def test_a_repeated_segment_listed_is_the_same() -> None:
    data = data_of([0, 1, 3] * 50)
    (part,), _ = index(data).segments(0, len(data))
    assert isinstance(part, Repeated)
    assert listed([part.listed()]) == expected([0, 1, 3] * 50)
