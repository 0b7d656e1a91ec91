"""Events of several kinds that are handled together."""

from __future__ import annotations

import struct
from array import array
from itertools import permutations

import pytest

from pytrace.core.event_layout import EventLayout
from pytrace.core.types import UINT64, String, Type
from pytrace.render.events.event_decoder import Formatter, RunHandler, Tally, Texts
from pytrace.render.events.printf import compile_pieces
from pytrace.runtime.ring import batches
from pytrace.runtime.ring.batches import Batches
from pytrace.runtime.ring.index import Index, Repeated
from tests.support.encode import Run, encode_event, record
from tests.support.rows import each_row


class Kinds:
    """Handlers of three kinds: a number, a short string with its NUL bytes, a text with `%` and without arguments."""

    def __init__(self, *, quick: bool = True) -> None:
        self.texts: list[bytes] = []
        context = Run().renderer._context
        forms: tuple[tuple[bytes, tuple[Type, ...]], ...] = (
            (b"n %d\n", (UINT64,)), (b"<%-6s>\n", (String(8),)), (b"100 %%\n", ()),
        )  # fmt: skip
        self.handlers: list[RunHandler] = [
            Texts(
                Formatter(EventLayout(kinds), context.decoders, compile_pieces(form, kinds, context.texts)),
                self.texts.extend, quick=quick,
            )
            for form, kinds in forms
        ]  # fmt: skip


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


def test_a_sequence_prints_what_its_events_print_one_by_one() -> None:
    for kinds in ([0, 1], [0, 1, 2], [2, 1], [2, 2, 0], [1, 1, 1, 0]):
        made = Kinds()
        data, part = repeated(kinds)
        group = Batches().sequence(made.handlers, part)
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
    assert Batches().together(made.handlers, kinds) == len(kinds)
    Batches().handle(made.handlers, data, places, kinds)
    assert made.texts == [TEXTS[kind] for kind in kinds]


def test_what_is_only_counted_is_counted_together() -> None:
    made = Kinds()
    counted: list[int] = []
    made.handlers = [Tally(counted.append)] * 3
    data, part = repeated([0, 1, 2])
    group = Batches().sequence(made.handlers, part)
    assert group is not None
    group(data, part.offset, 7)
    assert sum(counted) == 21


def test_what_takes_long_or_does_more_is_handled_alone() -> None:
    slow, quick = Kinds(quick=False), Kinds()
    _, part = repeated([0, 1])
    assert Batches().sequence(slow.handlers, part) is None
    assert Batches().together(slow.handlers, [0, 1]) == 0
    quick.handlers[1] = lambda *_: None
    assert Batches().sequence(quick.handlers, part) is None
    assert Batches().together(quick.handlers, [0, 0, 1, 0]) == 2
    assert Batches().together(quick.handlers, [0, 7]) == 1


def test_a_handler_that_was_replaced_is_not_used_any_more() -> None:
    made = Kinds()
    data, part = repeated([0, 1])
    known = Batches()
    assert known.sequence(made.handlers, part) is not None
    counted: list[int] = []
    made.handlers[:] = [Tally(counted.append)] * 3
    group = known.sequence(made.handlers, part)
    assert group is not None
    group(data, part.offset, 4)
    assert (made.texts, sum(counted)) == ([], 8)


def test_so_many_sequences_are_compiled_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SEQUENCES", 5)
    made, known = Kinds(), Batches()
    orders = [list(order) for order in sorted(set(permutations([0, 0, 1, 1, 2])))]
    given = [known.sequence(made.handlers, repeated(order)[1]) is not None for order in orders + orders[:7]]
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
        self.handlers = list(self.run.renderer.handlers)
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
        batches, data = Batches(), self.data(kinds)
        places, place = array("I"), 0
        while place < len(data):
            places.append(place // 4)
            place += 8 + (int.from_bytes(data[place : place + 4], "little") + 7) // 8 * 8
        done = 0
        while done < len(kinds):
            count = batches.together(self.handlers, kinds[done:])
            batches.handle(self.handlers, data, places[done : done + count], kinds[done : done + count])
            done += count
        return self.run.printed()

    def grouped(self, kinds: list[int], times: int) -> bytes | None:
        data = self.data(kinds * 40)
        (part,), _ = Index(memoryview(data).cast("I")).segments(0, len(data))
        assert isinstance(part, Repeated)
        group = Batches().sequence(self.handlers, part)
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
