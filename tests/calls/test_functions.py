"""Calls of functions in ``pytrace calls``: values as text, the tree of calls by thread, names, the script."""

from __future__ import annotations

import csv
import io
import json
from functools import partial

import pytest

from pytrace.calls import spans
from pytrace.calls.function_values import REGISTERS, Texts, Value, enumerators, failed, of_parameter, of_result
from pytrace.calls.functions import ENTER, LEAVE, MOST_FUNCTIONS, Function, FunctionProbes, Selection
from pytrace.calls.library_functions import signature
from pytrace.calls.tree import Shown, Tree
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import RegisterPart, UserParameter
from pytrace.core.types import BOOL, DOUBLE, INT32, INT64, UINT8, UINT64, VOID, Array, Enum, Field, Int, Pointer, Struct

CHAR = Int(1, True)
COLOR = Enum("Color", 4, False, (("RED", 0), ("GREEN", 5)))
BITS = Enum("Bits", 4, False, (("A", 1), ("B", 2), ("C", 8)))
POINT = Struct("struct", "Point", 8, (Field("x", INT32, 0), Field("y", INT32, 4)), "test")
STRING = Struct("struct", "basic_string<char, std::char_traits<char> >", 32, (Field("_M_p", UINT64, 0),), "test")
MIXED = Struct(
    "struct", "Mixed", 56,
    (Field("", POINT, 0), Field("flag", BOOL, 8), Field("bits", INT32, 12, 3, 2), Field("ratio", DOUBLE, 16),
     Field("name", STRING, 24)), "test",
)  # fmt: skip
WORDS = (0xFFFFFFFF_FFFFFFFE, 5, 0, 0x41, 0x00000002_00000007, 1)


def parameter(name: str, type_: object, location: str, declaration: str = "", **more: object) -> Value:
    return of_parameter(UserParameter(name, type_, location, declaration, **more), "x86_64", 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "reads", "text"), [
    (parameter("n", INT32, "di"), (), "-2"),
    (parameter("n", UINT64, "di"), (), "18446744073709551614"),
    (parameter("c", COLOR, "si"), (), "GREEN"),
    (parameter("c", CHAR, "cx", "char"), (), "'A'"),
    (parameter("c", UINT8, "cx", "unsigned char"), (), "65"),
    (parameter("yes", BOOL, "r9"), (), "true"),
    (parameter("p", POINT, "r8"), (), "{x=7, y=2}"),
    (parameter("s", Pointer(CHAR), "si", "const char*"), ("apple",), '"apple"'),
    (parameter("s", Pointer(CHAR), "si", "const char*"), ("pineapple",), '"pineappl"...'),
    (parameter("s", Pointer(CHAR), "dx", "const char*"), ("",), "NULL"),
    (parameter("s", Pointer(STRING), "si", "const string&"), ("kiwi", 4), '"kiwi"'),
    (parameter("s", Pointer(STRING), "si", "const string&"), ("watermel", 10), '"watermel"...'),
    (parameter("this", Pointer(POINT), "si"), (), "0x5"),
    (parameter("p", Pointer(POINT), "si"), (b"\x01\0\0\0\xff\xff\xff\xff",), "{x=1, y=-1}"),
    (parameter("big", MIXED, "sp+8"), (
        b"\x01\0\0\0\x02\0\0\0\x01\0\0\0\x10\0\0\0\0\0\0\0\0\0\xe0\x3f" + b"\x10" + b"\0" * 7 + b"\x02" + b"\0" * 7
        + b"hi" + b"\0" * 14,
    ), '{x=1, y=2, flag=true, bits=-2, ratio=0.5, name="hi"}'),
    (parameter("price", DOUBLE, "", lost=("",)), (), "?"),
    (parameter("k", INT32, "=4294967295"), (), "-1"),
    (parameter("moved", INT32, "bx"), (17,), "17"),
    (parameter("v", Struct("struct", "basic_string_view<char, x>", 16, (Field("n", UINT64, 0),), "test"), "", parts=(
        RegisterPart(0, 8, "si"), RegisterPart(8, 8, "cx"))), ("apples",), '"apple"'),
    (parameter("list", Array(INT32, 10), "sp+8"), (), "?"),
    (of_result(INT32, 8), (), "-2"),
    (of_result(VOID, 8), (), ""),
    (of_result(Pointer(CHAR), 8), ("x",), '"x"'),
    (of_result(STRING, 8), ("ab", 2), '"ab"'),
])  # fmt: skip
def test_values(value: Value, reads: tuple[object, ...], text: str) -> None:
    assert len(value.reads) == len(reads) or value.form == "lost"
    assert Texts(REGISTERS["x86_64"], 8).text(value, WORDS, reads) == text  # type: ignore[arg-type]


def test_names_and_failures() -> None:
    assert [enumerators(BITS, number) for number in (2, 11, 4, 0)] == ["B", "A|B|C", "4", "0"]
    assert [failed(type_, result) for type_, result in (
        (INT32, 0xFFFFFFFF), (INT32, 0), (Pointer(VOID), 0), (Pointer(VOID), 1), (INT64, 0xFFFFFFFF), (None, -1),
        (None, 0), (UINT64, -1),
    )] == [True, False, True, False, False, True, False, False]  # fmt: skip
    known = signature("printf", "x86_64", 32)
    assert known is not None
    assert [value.form for value in known[0]] == ["string", "rest"]
    assert signature("nobody_knows_it", "x86_64", 32) is None
    # What an order is told by is no failure.
    called = [Function(f"call:./a:{name}", name, "./a", *(signature(name, "x86_64", 32) or ()))
              for name in ("strcoll", "lround", "open")]  # fmt: skip
    assert [one.failed(-1) for one in called] == [False, False, True]


ONE, TWO = Function("call:./a:one", "one", "./a"), Function("call:./a:two", "two", "./a")


def tree(depth: int | None = None) -> Tree:
    return Tree({function.point: function for function in (ONE, TWO)}, 2, depth)


def enter(start: int, function: Function, place: int, tid: int = 1) -> tuple[int | str, ...]:
    return (ENTER, start, tid, 1, function.point, place, 3, 4)


def leave(start: int, function: Function, tid: int = 1) -> tuple[int | str, ...]:
    return (LEAVE, start, tid, 1, function.point, 5, 0)


def shown(of: Tree, *events: tuple[int | str, ...]) -> list[tuple[str, int, str]]:
    return [(call.function.name, call.start, step.name) for event in events for step, call in of.take(event)]


def test_a_call_is_shown_when_it_returns_or_calls_another_one() -> None:
    of = tree()
    assert shown(of, enter(1, ONE, 900), enter(2, TWO, 800)) == [("one", 1, "HEAD")]
    # Another thread.
    assert shown(of, enter(3, ONE, 900, tid=2), leave(3, ONE, tid=2)) == [("one", 3, "WHOLE")]
    assert shown(of, leave(2, TWO), leave(1, ONE)) == [("two", 2, "WHOLE"), ("one", 1, "END")]
    assert of.returned == 3
    assert not of.rest()


def test_calls_that_are_left() -> None:
    of = tree()
    # longjmp: what is entered at the same place or above it was called by one further up.
    assert shown(of, enter(1, ONE, 900), enter(2, TWO, 800), enter(3, ONE, 700)) == [
        ("one", 1, "HEAD"), ("two", 2, "HEAD")
    ]  # fmt: skip
    assert shown(of, enter(4, TWO, 800)) == [("one", 3, "LEFT"), ("two", 2, "LEFT")]
    # A return above them.
    assert shown(of, leave(1, ONE)) == [("two", 4, "LEFT"), ("one", 1, "END")]
    # Another stack says nothing.
    assert not shown(of, enter(5, ONE, 900), enter(6, TWO, 900 + (1 << 30)))[1:]
    assert [(step.name, call.start) for step, call in of.executed(1)] == [("LEFT", 6), ("LEFT", 5)]
    assert shown(of, leave(6, TWO)) == [("two", 6, "WHOLE")]
    assert of.unknown == 1


def test_depth_and_what_is_under_way() -> None:
    of = tree(depth=1)
    assert shown(of, enter(1, ONE, 900), enter(2, TWO, 800)) == []
    assert of.inside(1) == ([], None)
    assert [(step, call.start) for step, call in of.waiting()] == [(Shown.HEAD, 1)]
    assert [call.start for call in of.rest()] == [1]
    assert [(step, call.start) for step, call in of.ended(1)] == [(Shown.LEFT, 1)]


def test_functions_that_read_the_same_share_a_probe() -> None:
    two = partial(FunctionProbes, [ONE, TWO], "x86_64", starts=False)
    text = "\n".join(two(only_command=True, slow=0, failed=False).events())
    assert "call:./a:one,call:./a:two /pid == cpid/" in text
    whole = "\n".join(two(only_command=False, slow=1000, failed=True).events())
    calls, _, _executions = whole.partition("tracepoint:sched:sched_process_exec")
    assert calls.count("printf") == 1
    assert "duration >= 1000" in whole


def test_too_many_functions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [Function(f"call:./a:f{number}", f"f{number}", "./a") for number in range(MOST_FUNCTIONS + 1)]
    selection = Selection("x86_64", 32, (), ())
    monkeypatch.setattr(selection, "_native", lambda _target: iter(many))
    with pytest.raises(TraceError, match=f"these are {MOST_FUNCTIONS + 1} functions, and at most {MOST_FUNCTIONS}"):
        selection.functions(["./a:*"])


def test_threads_of_spans_have_the_name_of_their_program() -> None:
    """Also those that have ended when their call is read."""
    kept, gone = spans.Spans("./app"), 1 << 23
    kept.executed(gone, "/usr/bin/sh")
    kept.met(gone + 1, gone)
    kept.add(1, 1, gone + 1, gone + 1, "vfork", "", "0", 0)
    kept.executed(gone + 1, "/opt/a-program-with-a-long-name")
    kept.add(5, 1, gone + 1, gone + 1, "brk", "", "0", 0)
    file = io.BytesIO()
    kept.write("csv", file, {})
    names = [row["comm"] for row in csv.DictReader(file.getvalue().decode().splitlines())]
    assert names == ["sh", "a-program-with-"]


def test_spans_by_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_SPANS", 3)
    kept = spans.Spans("./app")
    start = 1_700_000_000_000_000_000
    for name, tid, begin, took in (("inner", 7, 10, 20), ("outer", 7, 5, 50), ("other", 8, 6, 1), ("more", 8, 9, 1)):
        kept.add(start + begin * 1000, took * 1000, 7, tid, name, 'n=1, s="x"', "0", 0)
    assert kept.dropped == 1
    file = io.BytesIO()
    kept.write("firefox", file, {"calls of functions": {"": 2}})
    document = json.loads(file.getvalue())
    strings = document["shared"]["stringArray"]
    found = {
        thread["tid"]: [(strings[name], begin, end) for name, begin, end in zip(
            thread["markers"]["name"], thread["markers"]["startTime"], thread["markers"]["endTime"], strict=True
        )] for thread in document["threads"]
    }  # fmt: skip
    assert found == {7: [("outer", 0.0, 0.05), ("inner", 0.005, 0.025)], 8: [("other", 0.001, 0.002)]}
    assert document["meta"]["extra"][0]["entries"][0]["value"] == 2
    for form in ("perfetto", "html"):
        file = io.BytesIO()
        kept.write(form, file, {})
        assert b"outer" in file.getvalue() or form == "html"


def test_the_probe_of_executed_programs_is_there_for_what_needs_it() -> None:
    """With ``-p`` no command begins: a script that compares ``cpid`` is warned of."""
    one = partial(FunctionProbes, [ONE], "x86_64", only_command=False, slow=0, failed=False)
    assert "sched_process_exec" not in "".join(one(starts=False).summary())
    begins = one(starts=True).summary()[-1]
    assert begins.startswith("tracepoint:sched:sched_process_exec")
    assert "cpid" in begins
    ends = one(starts=False).events()[-1]
    assert ends.startswith("tracepoint:sched:sched_process_exec")
    assert "cpid" not in ends
