"""Types of variables and maps: inference, resources, slots, constants."""

from __future__ import annotations

import pytest

from pytrace.core.source import Source, Span
from pytrace.core.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Avg,
    Count,
    Enum,
    Hist,
    Int,
    LHist,
    Max,
    Min,
    Pointer,
    Record,
    Stats,
    String,
    Struct,
    Sum,
    TSeries,
    Tuple,
    Type,
)
from pytrace.frontend.check.checker import SETTLE_AFTER, MapState, Slot
from pytrace.frontend.check.conversions import (
    UNKNOWN,
    Flexible,
    fits,
    is_text,
    is_text_pointer,
    literal,
    settle,
    signs_differ,
    unify,
    wrap,
)
from pytrace.frontend.check.expressions import FoldError, fold_arithmetic, fold_bytes, fold_comparison
from pytrace.frontend.check.maps import (
    MANY_KEYS,
    MUCH_MEMORY,
    comment_above,
    copies_size,
    kind_of_undeclared,
    zeroed_maps,
)
from pytrace.frontend.check.members import NAMED
from pytrace.frontend.check.statements import flexible_string
from pytrace.frontend.check.string_family import size_of_text
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.tokens import TYPE_NAMES
from tests.frontend.checking import refusals, values, warnings
from tests.support.facts import RecordedKernel
from tests.support.front import analyse
from tests.support.rows import each_row

# fmt: off
REFUSED = [
    ("begin { let $s: string[4] = \"abcdef\"; }", "1:9-37", "$s is string[4], this is string[7]"),
    ("begin { $r = (a=1, b=2); $r = (a=1, c=2); }", "1:26-41", "$r is (a=int8,b=int8), this is (a=int8,c=int8)"),
    ("begin { @a = count(); @b = 5; @a = @b; }", "1:31-38", "the value of @a is count_t, this is int8"),
    ("begin { @[ustack] = 1; @[kstack] = 1; }",
     "1:24-33", "the key of @ is ustack in bpftrace mode, this is kstack in bpftrace mode"),
    ("begin { @ = hist(1, 2); @ = hist(1, 3); }",
     "1:29-39", ("the value of @ is a histogram with 4 buckets a power of two, this is a "
     "histogram with 8 buckets a power of two")),
    ("begin { @ = lhist(1, 0, 10, 1); @ = lhist(1, 0, 20, 1); }",
     "1:37-55", "the value of @ is lhist_t from 0 to 10 by 1, this is lhist_t from 0 to 20 by 1"),
    ("begin { $a = 1; print(sizeof($a)); $a = 100000; }",
     "1:36-47", "$a is int8, which holds -128 to 127, not 100000"),
    ("begin { let $b: uint8 = 256; }", "1:9-28", "$b is uint8, which holds 0 to 255, not 256"),
    ("begin { let $b: uint32 = -1; }", "1:9-28", "$b is uint32, which holds 0 to 4294967295, not -1"),
    ("begin { let $b: bool = 5; }", "1:9-25", "$b is bool, this is int8"),
    ("begin { @x = count; @x = 5; }", "1:21-27", "the value of @x is count_t, this is int8"),
    ("begin { if (comm) { } }", "1:13-17", "a condition must be an integer, bool or pointer, not string[16]"),
    ("begin { $a = (1, 2); $a = (1, 2, 3); }", "1:22-36", "$a is (int8,int8), this is (int8,int8,int8)"),
    ("begin { @a = (1, \"ab\"); @a = (\"x\", \"abcd\"); }",
     "1:25-43", "the value of @a is (int8,string[3]), this is (string[2],string[5])"),
    ("begin { $x = join(0); }", "1:14-21", "join() returns nothing"),
    ("begin { @ = sum(1); @++; }", "1:21-24", "the value of @ is sum_t, this is int64"),
    ("begin { let $x: uint8 = 5; $x = 300; }", "1:28-36", "$x is uint8, which holds 0 to 255, not 300"),
    ("begin { let $x: int8 = comm; }", "1:9-28", "$x is int8, this is string[16]"),
    ("begin { @m[(1, 2)] = 1; @m[1] = 1; }", "1:25-30", "the key of @m is (int8,int8), this is int8"),
    ("let @m = hash(nsecs); begin { @m[1] = 1; }", "1:15-20", "the size of a map must be an integer constant"),
    # slots
    ("begin { $x = 1; { let $x = 2; } }", "1:19-25", "$x would hide a variable of an outer block"),
    ("begin { $i = 1; for ($i : 0..5) { } }", "1:22-24", "$i would hide a variable of an outer block"),
    ("begin { let $x = 1; let $x = 2; }", "1:21-27", "$x is already declared"),
    ("begin { for ($i : 0..2) { for ($i : 0..2) { } } }", "1:32-34", "$i would hide a variable of an outer block"),
    ("begin { { $x = 1; } print($x); }", "1:27-29", "undefined variable $x"),
    ("macro m() { $x + 1 } begin { $x = 1; print(m()); }", "1:13-15", "undefined variable $x"),
    # resources
    ("let @a = foo(5); begin { @a[1] = 1; }", "1:1-16", "there is no map type 'foo'"),
    ("let @a = hash(0); begin { @a[1] = 1; }", "1:15-16", "a map cannot have 0 entries"),
    ("let @a = percpuhash(5); begin { @a[1] = 1; }", "1:1-23", "@a holds int8, which a percpuhash cannot"),
    ("let @a = hash(5); begin { @a[1] = count(); }", "1:1-17", "@a holds count_t, which a hash cannot"),
    ("let @a = hash(5); let @a = hash(6); begin { @a[1] = 1; }", "1:19-35", "@a is already declared"),
    ("let @a = hash(4294967296); begin { @a[1] = 1; }", "1:15-25", "a map cannot have 4294967296 entries"),
    ("let @a = percpuhash(5); begin { @a = 1; }", "1:1-23", "@a holds int8, which a percpuhash cannot"),
    ("let @a = hsh(5); begin { @a[1] = 1; }", "1:1-16", "there is no map type 'hsh'"),
    # type names
    ("begin { print(sizeof(struct nosuch)); }", "1:22-35", "unknown struct 'nosuch'"),
    ("begin { let $x: foo_t; }", "1:17-22", "there is no type 'foo_t'"),
    ("begin { print(offsetof(struct nosuch, a)); }", "1:24-37", "unknown struct 'nosuch'"),
    ("begin { let $x: itn32; }", "1:17-22", "there is no type 'itn32'"),
    ("begin { print(sizeof(struct task_strut)); }", "1:22-39", "unknown struct 'task_strut'"),
    ("begin { print(sizeof(union nothing *)); }", "1:22-37", "unknown union 'nothing'"),
    ("begin { print(sizeof(int8[0])); }", "1:27-28", "an array cannot have 0 elements"),
    ("begin { print(sizeof(int8[pid])); }", "1:27-30", "the number of elements must be an integer constant"),
    ("begin { print(sizeof(enum nothing)); }", "1:22-34", "unknown enum 'nothing'"),
    # argument checks
    ("begin { @ = hist(1, true); }", "1:13-26", "the number of bits of hist() must be an integer literal"),
    ("begin { print(kstack(true)); }", "1:15-27", "the number of frames of kstack() must be an integer literal"),
    ("fn f(): int64 { print(args.x); return 1; } begin { print(f()); }", "1:23-27", "a function has no args"),
    ("kretprobe:vfs_read { print(args.x); }", "1:28-32", "kretprobe probes have no args here"),
    ("begin { print(strlen(int8)); }", "1:22-26", "a type cannot be an argument here"),
    ("begin { @ = lhist(1, \"a\", 2, 3); }", "1:13-32", "the minimum of lhist() must be an integer literal"),
    ("config = { unstable_typeinfo = \"error\" } begin { print(typeinfo(1)); }",
     "1:56-67", "typeinfo is unstable and disabled"),
]
WARNED = [
    ("begin { @ = nsecs; @ = (int8)-1; }",
     "1:20-32", "the value of @ becomes int64: it holds signed and unsigned 64-bit values"),
    ("begin { $x = nsecs; $x = (int64)pid; print($x); }",
     "1:21-36", "$x becomes int64: it holds both signed and unsigned 64-bit values"),
    ("kprobe:vfs_read { $p = kptr((int8 *)arg0); $p = uptr((int8 *)arg1); print($p); }",
     "1:44-67", "a pointer into user memory is assigned where one into kernel memory was"),
    ("begin { let $x: int32 = pid; }", "1:9-28", "$x is int32: the value, which is uint32, is cast to it"),
    # slots
    ("begin { let $x; }", "1:9-15", "$x is never assigned"),
    # resources
    ("let @a = hash(5); begin { @b[1] = count(); }", "1:1-17", "@a is declared but never used"),
    # type names
    ("kprobe:vfs_read { print(((task_struct *)arg0)->pid); }", "1:27-38", "'task_struct' is the name of a struct"),
    # argument checks
    ("config = { unstable_typeinfo = \"warn\" } begin { print(typeinfo(1)); }",
     "1:55-66", "typeinfo is unstable: its behaviour may change"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_warned = warnings(WARNED)


def test_notes_say_where_the_type_comes_from() -> None:
    for script, note, place in (
        ("begin { let $x: uint8 = 5; $x = comm; }", "declared here", 8),
        ("begin { $x = 5; $x = comm; }", "first used here", 8),
        ("begin { $x = 5; print(sizeof($x)); $x = 700; }", "its type is used here", 29),
    ):
        (error,) = analyse(script).diagnostics.errors
        assert [(item.message, item.span.start) for item in error.notes] == [(note, place)], script


def test_a_value_that_is_cut_on_purpose_needs_a_cast() -> None:
    (error,) = analyse("begin { let $x: uint8 = 300; }").diagnostics.errors
    assert error.hints == ("write (uint8) before the value to truncate it on purpose",)
    (error,) = analyse("begin { let $x: uint8 = comm; }").diagnostics.errors
    assert "cast" not in error.hints[0]


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ('begin { if (comm = "bash") { } }', "use '==' to compare"),
        ("begin { if (comm == bash) { } }", 'a string is written in quotes: "bash"'),
        ("begin { if (bash != comm) { } }", 'a string is written in quotes: "bash"'),
        ("begin { $x = pid; if (x == 1) { } }", "variables are written with '$': $x"),
        ("begin { $x = 1; } end { print($x); }", "a variable belongs to one run of one probe; a map such as @x[ti"),
        ("begin { @[1] = 1; print(@, top); }", "print(@, 10) prints the 10 largest entries"),
        ('begin { $x = 1; $x = "a"; }', "a variable, and the key and value of a map, keep one type: use another name"),
        ("t:sched:sched_switch { print(retval); }", "use args.ret"),
        ("t:sched:sched_switch { print(arg0); }", "use args.NAME; pytrace -lv 'tracepoint:sched:sched_switch' lists "),
    ],
)
def test_hints(script: str, hint: str) -> None:
    (error,) = analyse(script).diagnostics.errors
    assert error.hints[0].startswith(hint)


def test_a_value_with_an_error_explains_that_its_map_has_no_type() -> None:
    (error,) = analyse("begin { @x = exit(); print(@x); $y = @x; }").diagnostics.errors
    assert error.message == "exit() returns nothing"


@pytest.mark.parametrize("comparison", ['comm == "sixteen bytes and more"', '"sixteen bytes and more" != comm'])
def test_a_text_that_is_longer_than_what_it_is_compared_with(comparison: str) -> None:
    diagnostics = analyse(f"begin {{ if ({comparison}) {{ }} if (comm == \"fifteen bytes  \") {{ }} }}").diagnostics
    (warning,) = diagnostics.warnings
    assert warning.message == "compares the first 15 of 22 bytes: string[16] holds no more than 15"


def test_types_found_late_or_guessed() -> None:
    # Each map takes its type from the next one, so there is a pass for each.
    chain = " ".join(f"@m{at} = @m{at + 1};" for at in range(12))
    assert str(analyse(f"begin {{ {chain} @m12 = nsecs; }}").checked().maps["@m0"].value) == "uint64"
    assert str(analyse("begin { @n = @n + 1; }").checked().maps["@n"].value) == "int64"


# ---------------------------------------------------------------------------------------------------------------- slots

# ruff: noqa: E501 - one script a line




HERE, THERE = (Span(Source("stdin", "@a @b"), at, at + 2) for at in (0, 3))
TASK = Struct("struct", "task_struct", 8, (), origin="vmlinux", alignment=8)


def slot(*types: Type, **state: Type) -> Slot:
    found = Slot(**state)
    assert all(found.takes(type_, HERE) for type_ in types)
    return found


def test_types_join_and_declared_ones_stay() -> None:
    assert slot(INT8, INT32).type == INT32
    assert slot(literal(1), UINT64).type == UINT64
    assert slot(String(3), String(9)).type == String(9)
    assert not slot(INT8).takes(String(3), HERE)
    found = slot(INT8, fixed=INT16)
    assert found.type == INT16
    assert not found.takes(INT64, HERE)
    assert not found.takes(literal(40000), HERE)


def test_a_pass_collects_anew() -> None:
    found = slot(INT32)
    assert found.begin(2)
    assert (found.known, found.inferred, found.changed) == (INT32, UNKNOWN, 2)
    found.takes(INT32, HERE)
    assert not found.begin(3)
    found.takes(INT8, HERE)
    assert found.begin(4)
    assert found.known == INT8


def test_types_only_grow_in_the_end() -> None:
    found = slot(INT32, known=INT64)
    assert not found.begin(SETTLE_AFTER + 1)
    assert found.known == INT64


def test_what_a_question_relied_on_may_not_change() -> None:
    found = slot(INT8, known=INT8)
    found.lock_now(HERE)
    assert found.takes(literal(100), THERE)
    assert not found.takes(INT32, THERE)
    assert found.lock == HERE


def test_removed_code_offers_types() -> None:
    found = slot(INT8)
    found.offer(INT32, spare=False)
    found.begin(2)
    assert found.known == INT32
    left_out = Slot()
    left_out.offer(INT16, spare=True)
    left_out.begin(2)
    assert left_out.known == INT16
    taken = slot(String(3))
    taken.offer(INT16, spare=False)
    taken.offer(INT16, spare=True)
    taken.begin(2)
    assert taken.known == String(3)


def test_what_a_map_stores_first() -> None:
    assert slot(Pointer(TASK, trusted=True)).type == Pointer(TASK)
    found = slot(INT8)
    found.takes(INT8, THERE)
    assert found.first == HERE


def test_signs() -> None:
    assert slot(UINT64).mixes_signs(INT8)
    assert not slot(UINT8).mixes_signs(INT64)
    assert Slot(fixed=INT16).other_sign(UINT8)
    assert not Slot(fixed=INT16).other_sign(UINT64)
    assert not Slot(fixed=INT16).other_sign(INT8)


def test_declared_maps_that_nothing_is_stored_in() -> None:
    for kind, value in (("hash", INT64), ("percpuhash", Count())):
        ref = nodes.MapRef(HERE, "@a")
        state = MapState("@a", declaration=nodes.MapDecl(HERE, ref, kind, nodes.IntLiteral(HERE, 5)))
        assert state.incomplete
        state.make_empty()
        for item in state.slots:
            item.begin(2)
        assert (state.keyed, state.key.type, state.value.type, state.incomplete) == (True, INT64, value, False)


def test_names_and_strings() -> None:
    assert nodes.Variable(HERE, "x#3").shown == nodes.Variable(HERE, "x").shown == "x"
    assert flexible_string(String(0))
    assert not flexible_string(String(1))


# fmt: off
# fmt: on



@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { if (pid) { $b = 1; } print($b); }", "declare it before the block: let $b;"),
        ("macro m() { $x + 1 } begin { $x = 1; print(m()); }", "a macro sees only its own variables: add $x to its parameters"),
        ("begin { $counter = 1; print($countr); }", "did you mean '$counter'?"),
    ],
)
def test_slots_hints(script: str, hint: str) -> None:
    assert analyse(script).diagnostics.errors[0].hints == (hint,)


def test_a_name_may_be_used_again_after_its_block() -> None:
    script = 'begin { { $x = 1; print($x); } { $x = "text"; print($x); } }'
    types = [str(info.type) for info in analyse(script).checked().variables.values()]
    assert set(types) == {"int8", "string[5]"}



# ------------------------------------------------------------------------------------------------------------ resources

# fmt: off
# fmt: on



@pytest.mark.parametrize(
    ("script", "kind", "entries"),
    [
        ("begin { @m[1] = 1; }", "hash", 4096),
        ("begin { @m[1] = count(); }", "percpuhash", 4096),
        ("begin { @m = count(); }", "global", 1),
        ("let @m = lruhash(7); begin { @m[1] = 1; }", "lruhash", 7),
        ("let @m = percpulruhash(7); begin { @m[1] = count(); }", "percpulruhash", 7),
        ("let @m = hash(4294967295); begin { @m[1] = 1; }", "hash", 4294967295),
        ("config = { max_map_keys = 9 } begin { @m[1] = 1; }", "hash", 9),
        ("let @m = percpuhash(3); begin { print(@m); }", "percpuhash", 3),
    ],
)
def test_maps(script: str, kind: str, entries: int) -> None:
    info = analyse(script).checked().maps["@m"]
    assert (info.kind, info.max_entries) == (kind, entries)


def test_strings_and_suggestions_of_map_types() -> None:
    script = 'begin { print(strftime("a", 1)); print(strftime("b", 1)); print(cgroup_path(1, "a")); }'
    assert analyse(script).checked().strings == ["a", "b"]
    (error,) = analyse("let @a = hsh(5); begin { @a[1] = 1; }").diagnostics.errors
    assert "hash" in error.hints[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("// calls\nbegin { @a = count(); }", "calls"),
        ("begin {\n  // calls\n  @a = count();\n  // no more\n  @a = count(); }", "calls"),
        ("// table\nlet @a = hash(5);\nbegin {\n  // used\n  @a[1] = 1; }", "table"),
        ("let @a = hash(5);\nbegin {\n  // used\n  @a[1] = 1; }", "used"),
        ("begin {\n  @a = 1; // after\n  print(@a); }\n// below", ""),
        ("macro add(@m) {\n  // in a macro\n  @m = 1 }\nbegin {\n  // call\n  add(@a); }", "call"),
    ],
)
def test_maps_are_described_by_the_comment_above_them(text: str, expected: str) -> None:
    assert analyse(text).checked().maps["@a"].help == expected


@pytest.mark.parametrize("value", [Count(), Sum(), Avg(), Stats(), Hist(), LHist(0, 10, 1)])
def test_sums_of_very_many_keys_are_shared(value: Type) -> None:
    assert kind_of_undeclared(value, 1_000_000, 2, zeroed=False) == "hash"
    assert kind_of_undeclared(value, 1_000_000, 2, zeroed=True) == "percpuhash"
    assert kind_of_undeclared(value, 4096, 512, zeroed=False) == "percpuhash"


@pytest.mark.parametrize("value", [Min(), Max(), TSeries(1, 5)])
def test_what_is_not_a_sum_is_not_shared(value: Type) -> None:
    assert kind_of_undeclared(value, 1_000_000, 512, zeroed=False) == "percpuhash"


def test_values_of_no_aggregation() -> None:
    assert kind_of_undeclared(INT64, 1, 1, zeroed=True) == "hash"


def test_the_limits_of_shared_maps() -> None:
    """Many keys, and much memory for their copies."""
    cpus = MUCH_MEMORY // (8 * MANY_KEYS)
    assert kind_of_undeclared(Count(), MANY_KEYS, cpus, zeroed=False) == "hash"
    assert kind_of_undeclared(Count(), MANY_KEYS - 1, 4 * cpus, zeroed=False) == "percpuhash"
    assert kind_of_undeclared(Count(), MANY_KEYS, cpus - 1, zeroed=False) == "percpuhash"
    assert copies_size(Stats(), 3, 5) == 240
    assert copies_size(Hist(), 3, 5) == 120, "a bucket is an entry"


def test_maps_that_a_script_sets_to_zero() -> None:
    script = "begin { @a[1] = count(); @b[1] = count(); @c[1] = count(); zero(@b); clear(@c); print(@a); }"
    assert zeroed_maps(analyse(script).checked().event_list) == {"@b"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("@m[1] = count();", "hash"),
        ("@m[1] = max(5);", "percpuhash"),
        ("@m[1] = count(); zero(@m);", "percpuhash"),
        ("@m[1] = count(); print(@m); clear(@m);", "hash"),
    ],
)
def test_kinds_of_undeclared_maps(body: str, kind: str) -> None:
    script = f"config = {{ max_map_keys = 100000 }} begin {{ {body} }}"
    info = analyse(script, kernel=RecordedKernel(possible_cpus=2)).checked().maps["@m"]
    assert (info.kind, info.shared) == (kind, kind == "hash")
    few = analyse(f"begin {{ {body} }}", kernel=RecordedKernel(possible_cpus=2)).checked().maps["@m"]
    assert (few.kind, few.shared) == ("percpuhash", False)
    other = analyse(f"let @m = percpuhash(100000); begin {{ {body} }}").checked().maps["@m"]
    assert other.kind == "percpuhash"


@each_row(
    ("text", "expected"),
    [
        ("@", ""),
        ("// calls\n@", "calls"),
        ("begin {\n  // calls\n  @", "calls"),
        ("// one\n// two\n@", "one\ntwo"),
        ("// far\n\n// near\n@", "near"),
        ("// far\n\n@", ""),
        ("/* block */\n@", "block"),
        ("/*\n * one\n * two\n */\n@", "one\ntwo"),
        ("/** one */\n// two\n@", "two"),
        ("x; // of x\n@", ""),
        ("x; /* of x */\n@", ""),
        ("x; /* of\n x */\n@", ""),
        ("*/\n@", ""),
        ("///// line\n//\n@", "line"),
        ("//\n@", ""),
        ('printf("//");\n@', ""),
        ("// same line\nbegin { @", "same line"),
        ("// windows\r\n@", "windows"),
        ("/* windows\r\n * two */\r\n@", "windows\ntwo"),
    ],
)
def test_comments(text: str, expected: str) -> None:
    source = Source("x", text + "[1] = 1;\n// below")
    assert comment_above(Span(source, len(text) - 1, len(text))) == expected


@each_row(
    ("body", "kinds"),
    [
        ("print(@m); clear(@m);", [("print_map", True), ("clear", True)]),
        ('print(@m); printf("x"); clear(@m);', [("print_map", True), ("clear", True)]),
        (
            "print(@m); print(@n); clear(@m); clear(@n);",
            [("print_map", True), ("print_map", True), ("clear", True), ("clear", True)],
        ),
        ("if (pid) { print(@m); clear(@m); }", [("print_map", True), ("clear", True)]),
        ("clear(@m); print(@m);", [("clear", False), ("print_map", False)]),
        ("print(@m); @m[2] = 2; clear(@m);", [("print_map", False), ("clear", False)]),
        ("print(@m); print(@m[1]); clear(@m);", [("print_map", False), ("clear", False)]),
        ("print(@m); print(@m); clear(@m);", [("print_map", False), ("print_map", True), ("clear", True)]),
        ("print(@m); if (pid) { clear(@m); }", [("print_map", False), ("clear", False)]),
        ("print(@m); zero(@m);", [("print_map", False), ("zero", False)]),
        ("print(@m); exit(); clear(@m);", [("print_map", False)]),
        ("print(@m); clear(@n);", [("print_map", False), ("clear", False)]),
        ("print_clear(@m); clear(@m);", [("print_map", True), ("clear", False)]),
    ],
)
def test_pairs(body: str, kinds: list[tuple[str, bool]]) -> None:
    program = analyse(f"end {{ {body} }} begin {{ @m[1] = 1; @n[1] = 1; }}").checked()
    found = [
        (item.kind, bool(getattr(item.static, "clear", False) or getattr(item.static, "joined", False)))
        for item in program.event_list
        if item.kind in ("print_map", "clear", "zero")
    ]
    assert found == kinds


@each_row(
    ("body", "taking"),
    [
        ("for ($kv : @m) { print($kv); } clear(@m);", 1),
        ("for ($kv : @m) { row((a=$kv.0), \"a\"); } print_rows(5); clear(@m);", 1),
        ("for ($kv : @m) { if ($kv.1) { continue; } print($kv); } clear(@m);", 1),
        ("for ($kv : @m) { print($kv); } for ($kv : @n) { print($kv); } clear(@m); clear(@n);", 2),
        ("if (pid) { for ($kv : @m) { print($kv); } clear(@m); }", 1),
        ("for ($kv : @m) { print($kv); } print(@m[1]); clear(@m);", 0),
        ("for ($kv : @m) { print(@m[1]); } clear(@m);", 0),
        ("for ($kv : @m) { print($kv); break; } clear(@m);", 0),
        ("for ($kv : @m) { print($kv); } if (pid) { return; } clear(@m);", 0),
        ("for ($kv : @m) { print($kv); } if (pid) { exit(); } clear(@m);", 0),
        ("for ($kv : @m) { print($kv); } if (pid) { clear(@m); }", 0),
        ("for ($kv : @m) { print(($kv.1, @n[$kv.0])); } clear(@m); clear(@n);", 0),
        ("clear(@m); for ($kv : @m) { print($kv); }", 0),
        ("for ($kv : @m) { print($kv); } zero(@m);", 0),
        ("for ($kv : @m) { print(looks()); } clear(@m);", 0),
        ("for ($kv : @m) { print($kv); } print(looks()); clear(@m);", 0),
    ],
)
def test_loops_take_what_is_cleared_after_them(body: str, taking: int) -> None:
    looks = "fn looks(): int64 { return @m[1]; } " if "looks" in body else ""
    program = analyse(f"{looks}interval:s:1 {{ {body} }} begin {{ @m[1] = 1; @n[1] = 1; }}").checked()
    assert len(program.taking) == taking
    assert len(program.dead) >= taking
    # Nothing prints what comes after an end probe.
    assert not analyse(f"{looks}end {{ {body} }} begin {{ @m[1] = 1; @n[1] = 1; }}").checked().taking


def test_the_clear_sends_nothing() -> None:
    program = analyse("begin { @m[1] = 1; print(@m); clear(@m); }").checked()
    assert len(program.dead) == 1


# ---------------------------------------------------------------------------------------------------------- conversions

COLOR = Enum("color", 4, False, (("RED", 0),))


@each_row(
    ("first", "second", "wanted"),
    [
        (INT8, INT32, INT32),
        (UINT8, UINT32, UINT32),
        (UINT8, INT8, INT16),
        (UINT32, INT8, INT64),
        (UINT64, INT8, INT64),
        (UINT16, INT64, INT64),
        (literal(5), UINT16, UINT16),
        (literal(70000), UINT16, UINT32),
        (literal(-1), UINT16, INT32),
        (literal(-1), UINT64, INT64),
        (BOOL, INT8, INT8),
        (BOOL, BOOL, BOOL),
        (String(4), String(9), String(9)),
        (COLOR, COLOR, COLOR),
        (COLOR, literal(3), UINT32),
        (Tuple((INT8, String(2))), Tuple((INT32, String(1))), Tuple((INT32, String(2)))),
        (Tuple((INT8,)), Tuple((INT8, INT8)), None),
        (Record(("a", "b"), (INT8, INT16)), Record(("b", "a"), (INT8, INT64)), Record(("a", "b"), (INT64, INT16))),
        (Record(("a",), (INT8,)), Record(("b",), (INT8,)), None),
        (Pointer(INT8), Pointer(INT8), Pointer(INT8)),
        (Pointer(INT8), Pointer(VOID), Pointer(VOID)),
        (Pointer(INT8), Pointer(INT16), None),
        (Pointer(INT8), INT64, None),
        (INT8, String(4), None),
        (Array(INT8, 4), Array(UINT8, 4), Array(INT8, 4)),
        (Array(INT8, 4), Array(INT8, 5), None),
        (Array(Pointer(INT8), 2), Array(Pointer(INT8, AddressSpace.USER), 2), Array(Pointer(INT8), 2)),
        (Array(Pointer(INT8), 2), Array(Pointer(INT16), 2), None),
        (Count(), Sum(), None),
        (Sum(True), Sum(False), Sum(True)),
        (UNKNOWN, INT8, INT8),
    ],
)
def test_unify(first: Type, second: Type, wanted: Type | None) -> None:
    found = unify(first, second)
    assert (settle(found) if found is not None else None) == wanted


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0, 127, INT8), (0, 128, INT16), (-129, 0, INT16), (0, 1 << 63, UINT64), (-1, 1 << 31, INT64)],
)
def test_settle(low: int, high: int, wanted: Type) -> None:
    assert settle(Flexible(low, high)) == wanted
    assert settle(Tuple((Flexible(low, high),))) == Tuple((wanted,))


def test_conversions_signs() -> None:
    assert signs_differ(UINT64, INT8)
    assert signs_differ(literal(-1), UINT64)
    assert not signs_differ(literal(1), UINT64)
    assert not signs_differ(UINT32, INT8)


@each_row(
    ("value", "slot", "wanted"),
    [
        (INT8, INT16, True), (INT16, INT8, False), (UINT8, INT16, True), (INT8, UINT16, False),
        (literal(255), UINT8, True), (literal(256), UINT8, False), (literal(1), BOOL, True), (INT8, BOOL, False),
        (String(4), String(8), True), (String(8), String(4), False),
        (Tuple((INT8,)), Tuple((INT16,)), True), (Tuple((INT16,)), Tuple((INT8,)), False),
        (Record(("a", "b"), (INT8, INT8)), Record(("b", "a"), (INT16, INT8)), True),
        (Pointer(INT8), Pointer(INT8), True), (Pointer(INT8), INT64, False), (UNKNOWN, INT8, True),
    ],
)  # fmt: skip
def test_fits(value: Type, slot: Type, wanted: bool) -> None:
    assert fits(value, slot) is wanted



# ----------------------------------------------------------------------------------------------------- constant folding

@pytest.mark.parametrize(
    ("value", "type_", "wanted"),
    [
        (300, UINT8, 44), (200, INT8, -56), (-1, UINT8, 255), (127, INT8, 127), (128, INT8, -128), (1 << 64, INT64, 0),
        (-1, UINT64, 2**64 - 1),
    ],
)  # fmt: skip
def test_wrap(value: int, type_: Int, wanted: int) -> None:
    assert wrap(value, type_) == wanted


@each_row(
    ("left", "operator", "right", "type_", "wanted"),
    [
        (7, "/", 2, None, 3), (-7, "/", 2, None, -3), (7, "/", -2, None, -3), (-7, "/", -2, None, 3),
        (-7, "%", 3, None, -1), (7, "%", -3, None, 1),
        (1, "<<", 65, None, 2),
        (-1, "<<", 63, None, -(2**63)), (1, "<<", 64, None, 1), (-8, ">>", 1, None, -4), (8, ">>", 65, None, 4),
        (2**63, "<<", 1, None, 0), (6, "&", 3, None, 2), (6, "|", 3, None, 7), (6, "^", 3, None, 5),
        (2**63 - 1, "+", 1, INT64, -(2**63)), (2**63 - 1, "+", 1, None, 2**63), (0, "-", 1, UINT64, 2**64 - 1),
        (2**31, "*", 2, INT32, 0), (-1, "/", 2, UINT64, 2**63 - 1), (1, "<<", -1, INT64, -(2**63)),
    ],
)  # fmt: skip
def test_arithmetic(left: int, operator: str, right: int, type_: Int | None, wanted: int) -> None:
    assert fold_arithmetic(operator, left, right, type_) == wanted


@pytest.mark.parametrize(
    ("left", "operator", "right", "message"),
    [
        (1, "/", 0, "division by zero"), (1, "%", 0, "division by zero"), (2**64 - 1, "+", 1, "fit 64 bits"),
        (-(2**63), "-", 1, "fit 64 bits"),
    ],
)  # fmt: skip
def test_results_that_do_not_exist(left: int, operator: str, right: int, message: str) -> None:
    with pytest.raises(FoldError, match=message):
        fold_arithmetic(operator, left, right, None)


def test_folded_comparisons_and_strings() -> None:
    assert fold_comparison("<", -1, 1, None)
    assert not fold_comparison("<", -1, 1, UINT64)
    assert fold_comparison("==", 256, 0, UINT8)
    assert fold_comparison(">=", 5, 5, INT64)
    assert not fold_comparison("!=", 5, 5, INT64)
    assert fold_bytes("==", b"a\0b", b"a")
    assert fold_bytes("<", b"a", b"b")
    assert not fold_bytes("!=", b"", b"\0x")


# ----------------------------------------------------------------------------------------------------------- type names

# fmt: off
VALUES = [
    ("begin { print(sizeof(int8)); }", "int8", 1),
    ("begin { print(sizeof(uint64)); }", "int8", 8),
    ("begin { print(sizeof(void *)); }", "int8", 8),
    ("begin { print(sizeof(size_t)); }", "int8", 8),
    ("begin { print(sizeof(pid_t)); }", "int8", 4),
    ("begin { print(sizeof(char)); }", "int8", 1),
    ("begin { print(sizeof(u16)); }", "int8", 2),
    ("begin { print(sizeof(struct task_struct)); }", "int8", 104),
    ("begin { print(sizeof(enum task_state)); }", "int8", 4),
    ("begin { print(sizeof(int32[3])); }", "int8", 12),
    ("begin { print(sizeof(string[7])); }", "int8", 7),
    ("begin { print(sizeof(buffer[4])); }", "int8", 8),
    ("begin { print(sizeof(inet)); }", "int8", 20),
    ("begin { print(sizeof(kstack_t)); }", "int16", 1024),
    ("begin { print(sizeof(typeof(nsecs))); }", "int8", 8),
    ("begin { print(sizeof(unsigned)); }", "int8", 4),
    ("begin { @m[(int16)1] = nsecs; print(sizeof(@m)); }", "int8", 2),
    ("begin { @m = (int32)1; print(sizeof(@m)); }", "int8", 4),
]
# fmt: on

test_values = values(VALUES)


def test_names_of_types() -> None:
    (error,) = analyse("begin { let $x: ksim_t; }").diagnostics.errors
    assert error.hints == ("did you mean 'ksym_t'?",)
    # Else it is a type where only a type may stand, and a variable in ``sizeof(NAME)``.
    assert set(NAMED) - TYPE_NAMES == {"username"}, "which is a value, too"


# ------------------------------------------------------------------------------------------------------ argument checks

# ruff: noqa: E501 - one script a line




# fmt: off
# fmt: on



@pytest.mark.parametrize(
    ("type_", "text", "pointer"),
    [
        (String(3), True, False), (Array(INT8, 4), True, False), (Array(UINT8, 4), True, False),
        (Array(INT32, 4), False, False), (Pointer(INT8), False, True), (Pointer(INT32), False, False), (BOOL, False, False),
    ],
)  # fmt: skip
def test_what_counts_as_text(type_: Type, text: bool, pointer: bool) -> None:
    assert (is_text(type_), is_text_pointer(type_)) == (text, pointer)


def test_sizes_of_texts() -> None:
    assert (size_of_text(String(3)), size_of_text(Array(INT8, 4))) == (3, 4)


@pytest.mark.parametrize(("setting", "errors", "warnings"), [("enable", 0, 0), ("warn", 0, 1), ("error", 1, 0)])
def test_unstable_features(setting: str, errors: int, warnings: int) -> None:
    result = analyse(f'config = {{ unstable_tseries = "{setting}" }} begin {{ @ = tseries(1, 1s, 3); }}')
    assert (len(result.errors), len(result.warnings)) == (errors, warnings)


def test_probes_without_args_say_what_there_is() -> None:
    (error,) = analyse("kprobe:vfs_read+4 { print(args.count); }").diagnostics.errors
    assert error.hints == ("use arg0, arg1 …",)


# fmt: off
REFUSED_formats = [
    ("begin { printf(\"%d\", comm); }", "1:9-27", "printf(): %d takes an integer, not string[16]"),
    ("begin { printf(\"%gr\", true); }", "1:9-28", "printf(): %gr takes an integer of GFP flags, not bool"),
    ("begin { printf(\"%r\", comm); }", "1:9-27", "printf(): %r takes a buffer, not string[16]"),
    ("begin { printf(\"%d\"); }", "1:9-21", "not enough values for printf(): the format takes 1, 0 given"),
    ("begin { printf(\"x\", 1); }", "1:9-23", "too many values for printf(): the format takes 0, 1 given"),
    ("begin { printf(\"%a\", 1); }", "1:9-24", "printf(): conversion '%a' is not supported"),
    ("begin { printf(\"%d\", 1.5); }", "1:9-26", "printf(): %d takes an integer, not double"),
    ("begin { printf(\"100% sure %d\", 1); }",
     "1:9-34", "not enough values for printf(): the format takes 2, 1 given"),
    ("begin { @h = hist(1); printf(\"%s\", @h); }", "1:36-38", "a value of hist_t cannot be read by the script"),
]
WARNED_formats = [
    ("begin { printf(\"%y\"); }", "1:9-21", "printf(): '%y' is not a conversion: the % is printed as it is"),
]
# fmt: on

test_refused_formats = refusals(REFUSED_formats)
test_warned_formats = warnings(WARNED_formats)


@each_row(
    ("conversion", "value"),
    [(c, v) for c in ("d", "i", "u", "o", "x", "X", "c", "p") for v in ("1", "true", "curtask", "pid")]
    + [("gr", "pid"), ("s", "pid"), ("s", "comm"), ("s", "(1, 2)"), ("r", 'buf("a")'), ("rx", 'buf("a")'), ("rh", 'buf("a")')],
)
def test_what_conversions_take(conversion: str, value: str) -> None:
    assert not analyse(f'begin {{ printf("%{conversion}", {value}); }}').errors


def test_a_space_is_a_flag() -> None:
    (error,) = analyse('begin { printf("100% done"); }').diagnostics.errors
    assert error.hints == ("'% d' is a conversion; write %% for a % sign",)
