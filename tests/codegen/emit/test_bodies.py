"""Bodies: split, run late, bounded; their loops and stack use."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.codegen.emit import bodies, loops
from pytrace.codegen.emit.bodies import deciding_strings, late_body
from pytrace.codegen.emit.loops import FOLLOWED, MOST_ITERATIONS
from pytrace.codegen.ir import target
from pytrace.codegen.lower import generator
from pytrace.codegen.lower.generator import generate
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.codegen.emit.test_map_uses import checked
from tests.codegen.running import helpers, machine, messages, printed, ran
from tests.support.facts import RecordedKernel
from tests.support.front import analyse
from tests.support.recorded import TRACEPOINTS, Facts


def planned(text: str) -> tuple[bodies.Plan, nodes.Block]:
    program = checked(text)
    body = program.units[0].body
    with pipeline.room():
        return bodies.split_plan(program, [body]), body


def ir(text: str) -> str:
    return generate(checked(text), RecordedKernel(), CompileOptions())[0]


def statements(count: int) -> str:
    return " ".join(f"@a[{number}] = {number};" for number in range(count))


def test_short_bodies_are_one_function() -> None:
    plan, _ = planned(f"begin {{ {statements(200)} unroll (20) {{ @++; }} }}")
    assert not plan.blocks
    assert not plan.loops
    assert not plan.chains


def test_statements_are_cut_in_order() -> None:
    plan, body = planned(f"begin {{ {statements(1500)} }}")
    segments = plan.blocks[body]
    assert [item for segment in segments for item in segment.statements] == list(body.statements)
    assert all(segment.apart for segment in segments[:-1])
    assert 7 <= len(segments) <= 12


def test_there_are_never_more_parts_than_the_kernel_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_PARTS", 8)
    plan, body = planned(f"begin {{ {statements(3000)} }}")
    assert 8 <= len(plan.blocks[body]) <= 10


def test_what_leaves_a_loop_stays_in_it() -> None:
    inside = " ".join(f"if (@a[{number}] == 1) {{ break; }} {statements(150)}" for number in range(8))
    plan, body = planned(f"begin {{ for ($i : 0..3) {{ {inside} }} }}")
    loop = next(node for node in walk(body) if isinstance(node, nodes.For))
    for segment in plan.blocks[loop.body]:
        jumps = any(isinstance(node, nodes.Break) for item in segment.statements for node in walk(item))
        assert segment.apart != jumps


def test_few_statements_are_no_function() -> None:
    inside = " ".join(f"if (@a[{number}] == 1) {{ break; }} @a[{number}] = 1;" for number in range(400))
    plan, _ = planned(f"begin {{ for ($i : 0..3) {{ {inside} }} }}")
    assert not any(segment.apart for segments in plan.blocks.values() for segment in segments)


def test_long_chains_are_cut() -> None:
    text = " else ".join(f"if (pid == {number}) {{ @ = {number}; }}" for number in range(700))
    plan, body = planned(f"begin {{ {text} else {{ @ = 5; }} }}")
    (chain,) = plan.chains.values()
    assert sum(len(group) for group in chain.groups) == 700
    assert chain.other is not None
    assert body in plan.blocks


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("unroll (100) { @x++; }", 0),
        ("unroll (100) { unroll (100) { @x++; } }", 1),
        ("unroll (100) { unroll (100) { unroll (100) { @x++; } } }", 2),
        ("unroll (100) { unroll (100) { unroll (100) { unroll (100) { unroll (9) { @x++; } } } } }", 3),
    ],
)
def test_unrolls_that_become_loops(text: str, loops: int) -> None:
    plan, _ = planned(f"begin {{ {text} }}")
    assert len(plan.loops) == loops


def test_nested_unrolls_cost_no_more_than_their_bodies() -> None:
    flat = len(ir("begin { unroll (50) { @x++; } }"))
    assert len(ir("begin { unroll (100) { unroll (100) { @x++; } } }")) < 3 * flat


@pytest.mark.parametrize(
    "statement", ["@a[{0}] = {0};", 'printf("n %d\\n", {0});', "@c[{0}] = count();", "@v{0} = {0};"]
)
def test_code_grows_with_the_length(statement: str) -> None:
    def lines(count: int) -> tuple[int, int]:
        text = ir("begin { " + " ".join(statement.format(number) for number in range(count)) + " }")
        return text.count("\n"), target.longest(text)

    (some, _), (many, longest) = lines(1000), lines(2000)
    assert many < 2.1 * some
    assert longest < target.LARGE


# ---------------------------------------------------------------------------------------------------------- late bodies

_FIELDS = TRACEPOINTS["syscalls", "sys_enter_openat"]
_MORE = (("syscalls", "sys_enter_read"), ("syscalls", "sys_exit_openat"), ("raw_syscalls", "sys_enter"))
KERNEL = Facts()
KERNEL.events = {**TRACEPOINTS, **dict.fromkeys(_MORE, _FIELDS)}

OPENS = "t:syscalls:sys_enter_openat"
NAME = "str(args.filename)"
VALUES = " begin { @on = 1; @x[1] = 1; }"


def late(text: str) -> tuple[int, int] | None:
    """How many strings of the first probe postpone it, and how many are read before it."""
    checked = analyse(text, kernel=KERNEL).checked()
    found = late_body(checked, checked.units[0])
    return None if found is None else (len(found.reads), len(found.ahead))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (f"@[{NAME}] = count();", (1, 0)),
        (f"@[comm, {NAME}, pid] = sum(args.dfd);", (1, 0)),
        (f"@[{NAME}]++;", (1, 0)),
        (f"@[{NAME}] = nsecs; @old[{NAME}] = max(elapsed);", (1, 1)),
        (f"@[{NAME}] = nsecs(monotonic);", (1, 0)),
        (f"@y = {NAME};", (1, 0)),
        (f'if ({NAME} == "/etc/passwd") {{ @n = count(); }} else {{ @m = count(); }}', (1, 0)),
        (f'$f = {NAME}; if (strcontains($f, "x")) {{ printf("%s", $f); }}', (1, 0)),
        (f"@n = count(); @[{NAME}] = count();", (0, 1)),
        (f"@[{NAME}] = count(); @m[{NAME}] = count();", (1, 1)),
        # Events with strings wait by themselves.
        (f'printf("%s", {NAME});', None),
        (f'@n = count(); printf("%s", {NAME});', None),
        # Another address than an argument of the call is not known before.
        (f"@n = count(); $p = args.filename + 1; @[{NAME}, str($p)] = count();", (0, 1)),
        # What may be another value later.
        (f"@[{NAME}] = jiffies;", None),
        (f"@[{NAME}, cpu] = count();", None),
        (f"@[{NAME}, rand] = count();", None),
        (f"@[{NAME}, ustack] = count();", None),
        (f"@n += 1; @[{NAME}] = @n;", None),
        (f"if (@on) {{ @[{NAME}] = count(); }}", None),
        (f"$old = @x[1]++; @[{NAME}] = count();", None),
        (f"@[{NAME}] = count(); exit();", None),
        (f"@[{NAME}] = count(); delete(@x, tid);", None),
        (f"@[{NAME}] = count(); print(@);", None),
        (f"@[{NAME}] = count(); print(args);", None),
        (f"for ($i : 0..2) {{ @[{NAME}, $i] = count(); }}", None),
        ("@[args.dfd] = count();", None),
    ],
)
def test_bodies(body: str, wanted: tuple[int, int] | None) -> None:
    assert late(f"{OPENS} {{ {body} }}{VALUES if '@on' in body or '@x' in body else ''}") == wanted


@pytest.mark.parametrize(
    ("rest", "waits"),
    [
        ("t:syscalls:sys_exit_openat { print(@[tid]); delete(@, tid); }", True),
        ("interval:s:1 { print(@); clear(@); }", True),
        ("end { for ($kv : @) { print($kv); } }", True),
        ('t:syscalls:sys_enter_read { @[tid] = "x"; }', True),
        ("t:syscalls:sys_enter_read { print(@[tid]); }", False),
        ("interval:s:1 { for ($kv : @) { print($kv); } }", False),
    ],
)
def test_who_looks_for_what_it_writes(rest: str, waits: bool) -> None:
    assert (late(f"{OPENS} {{ @[tid] = {NAME}; }} {rest}") is not None) is waits


@pytest.mark.parametrize(
    ("probe", "waits"),
    [
        ("t:syscalls:sys_enter_openat", True),
        ("t:syscalls:sys_enter_execve", False),
        ("t:raw_syscalls:sys_enter", False),
        ("t:syscalls:sys_exit_openat", False),
    ],
)
def test_probes(probe: str, waits: bool) -> None:
    address = "args.filename" if "sys_enter_" in probe else "uptr(1)"
    assert (late(f"{probe} {{ @[str({address})] = count(); }}") is not None) is waits


@pytest.mark.parametrize(
    ("body", "strings"),
    [
        ("@[str(1), 2] = count(); print(str(2));", 1),
        ("$a = str(1); $b = str(2); @[$a] = $b;", 1),
        ("let $a = str(1); @x[comm, $a] = 1; @y[str(3)] = str(4);", 2),
        ("@[buf(1, 4)] = count(); print(buf(2, 4));", 1),
        ("@x = str(1);", 0),
        ('@x = str(1); @y = @x; if (@y == "a") { @n = count(); }', 1),
        ("@x[1] = str(1); @n[@x[1]] = count();", 1),
        ('if (str(1) == "x") { print(str(2)); }', 1),
        ('$hit = pid == 1 && str(1) != "x"; print($hit);', 1),
        ('print(strcontains(str(1), "x") ? "yes" : str(2));', 1),
        ('$a = str(1); $b = $a; if (!strncmp($b, "x", 1)) { print($b); }', 1),
        ("if (called(str(1))) { print(1); }", 1),
        ('delete(@x, str(1)); @x["a"] = 1;', 1),
        ('print((str(1), comm == "x")); $a = str(2); printf("%s", $a);', 0),
    ],
)
def test_strings_that_keys_and_conditions_use(body: str, strings: int) -> None:
    macro = 'macro called(s) { s == "x" } ' if "called(" in body else ""
    checked = analyse(f"{macro}begin {{ {body} }}").checked()
    assert len(deciding_strings(checked)) == strings


def test_strings_that_functions_use() -> None:
    same = 'fn same($p: int64): bool { $s = str($p); return $s == "x"; }'
    shown = "fn shown($p: int64): bool { print(str($p)); return true; }"
    checked = analyse(f"{same} {shown} begin {{ if (same(1) && shown(2)) {{ print(1); }} }}")
    assert len(deciding_strings(checked.checked())) == 1


# ---------------------------------------------------------------------------------------------------------------- loops

OLD = Facts(missing=frozenset({"bpf_loop"}))


@pytest.mark.parametrize("kernel", [Facts(), OLD], ids=["bpf_loop", "followed"])
@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("for ($i : 0..4) { @ += $i; }", 6),
        ("for ($i : -2..3) { @ += $i + 10; }", 50),
        ("for ($i : 3..3) { @ = 9; } for ($i : 4..1) { @ = 9; }", 0),
        ("for ($i : 0..10) { if ($i == 3) { break; } @ = $i; }", 2),
        ("for ($i : 0..4) { if ($i % 2 == 1) { continue; } @ += 1; }", 2),
        ("for ($i : 0..4) { for ($j : 0..3) { if ($j == 2) { break; } @ += 1; } }", 8),
        ("for ($i : 0..4) { @ = 5; if ($i == 1) { return; } } @ = 9;", 5),
        ("for ($i : 0..4) { for ($j : 0..4) { @ += 1; if ($j == 1) { return; } } } @ = 99;", 2),
        ("$n = 0; while ($n < 5) { $n++; @ = $n; }", 5),
        ("$n = 0; while (1) { $n++; @ = $n; if ($n == 3) { break; } }", 3),
        ("$x = 1; for ($i : 0..3) { $x = $x * 2; } @ = $x;", 8),
    ],
)
def test_rounds(kernel: Facts, body: str, wanted: int) -> None:
    found = ran(f"begin {{ @ = 0; {body} }}", kernel)
    assert found.slot("@") == wanted
    assert (181 in helpers(found)) <= (kernel is not OLD)


def test_what_loops_hand_over() -> None:
    script = """fn f($n: int64): int64 { for ($i : 0..10) { if ($i == $n) { return $i * 100; } } return -1; }
    begin { print(f(3)); print(f(30)); }"""
    assert ran(script).printed() == [300, -1]
    assert ran(script, OLD).printed() == [300, -1]
    found = machine("tracepoint:sched:sched_switch { $p = args.next_pid; for ($i : 0..2) { print($p + $i); } }")
    context = bytearray(64)
    context[24:28] = (77).to_bytes(4, "little")
    found.run(context=bytes(context))
    assert found.printed() == [77, 78]


def test_rounds_of_loops_are_limited_by_the_kernel() -> None:
    found = ran(f"begin {{ for ($i : 0..{MOST_ITERATIONS + 1}) {{ @ = $i; }} }}")
    ((kind, arguments),) = found.values()
    assert (kind, arguments) == ("helper_error", [-7])
    found = ran(f"begin {{ for ($i : 0..{FOLLOWED + 5}) {{ @ += 1; }} }}", OLD)
    assert found.slot("@") == FOLLOWED


LIMITED = """config = { max_loop_iterations = 10 } let @m = hash(4);
fn f($n : int64) : void { for ($i : 0..$n) { @a++; } }"""


@pytest.mark.parametrize(
    ("body", "wanted", "reports"),
    [
        # (iterations of the inner loop, runs of the outer body to its end, what is after the loops)
        ("for ($i : 0..5) { for ($j : 0..$n) { @a++; } @b++; }", (10, 3, 1), 1),
        ("for ($i : 0..2) { for ($j : 0..$n) { @a++; } @b++; }", (6, 2, 1), 0),
        ("while (1) { for ($j : 0..$n) { @a++; } @b++; }", (10, 3, 1), 1),
        ("for ($i : 0..5) { for ($j : 0..$n) { @a++; if ($j == 0) { break; } } @b++; }", (5, 5, 1), 0),
        ("for ($j : 0..$n) { @a++; } for ($j : 0..$n) { @a++; } for ($j : 0..5) { @a++; @b++; }", (10, 4, 1), 1),
        ("for ($i : 0..5) { f($n); @b++; }", (10, 4, 1), 1),
        ("for ($i : 0..5) { f($n); @b++; continue; }", (10, 4, 1), 1),
        ("@m[1] = 1; @m[2] = 1; for ($i : 0..5) { for ($kv : @m) { f($n); @a--; } @b++; }", (4, 1, 1), 1),
        ("for ($i : 0..12) { @a++; @b++; }", (10, 10, 1), 1),
        ("@m[1] = 1; @m[2] = 1; for ($i : 0..5) { for ($kv : @m) { @a++; } @b++; }", (6, 3, 1), 1),
        ("for ($i : 0..3) { for ($j : 0..$n) { for ($k : 0..$n) { @a++; } } @b++; }", (9, 1, 1), 1),
    ],
)
def test_all_loops_together_are_limited(body: str, wanted: tuple[int, int, int], reports: int) -> None:
    """The first is reported at its place; the loops around it end as well, what comes after them runs."""
    found = ran(f"{LIMITED} begin {{ @a = 0; @b = 0; $n = 3 + pid - pid; {body} @c = 1; }}")
    assert tuple(found.slot(name) for name in ("@a", "@b", "@c")) == wanted
    assert [item for item in found.values() if item[0] == "helper_error"] == [("helper_error", [-40])] * reports


def test_limits_of_loops_are_counted_where_they_can_be_reached() -> None:
    found = machine(f"{LIMITED} begin {{ for ($i : 0..2) {{ f(pid - pid + 4); }} }}")
    found.run()
    found.run()
    assert found.slot("@a") == 16
    plain = "begin {{ for ($i : 0..{0}) {{ @ = $i; }} }}"
    limited = "config = {{ max_loop_iterations = 99 }} " + plain
    steps = [ran(text.format(50)).steps for text in (plain, limited)]
    assert steps[0] == steps[1]


# ---------------------------------------------------------------------------------------------------------- loop bounds

MOST = loops.MOST_ITERATIONS


def _most(text: str) -> int:
    checked: CheckedProgram = analyse(text).checked()
    return loops.most_iterations(checked, checked.units[-1].body)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("begin { @ = 1; }", 0),
        ("begin { for ($i : 0..10) { @ = $i; } }", 10),
        ("begin { for ($i : 10..0) { @ = $i; } }", 0),
        ("begin { for ($i : 0..10) { for ($j : 0..5) { @ = $j; } } for ($k : 0..3) { @ = $k; } }", 63),
        ("begin { for ($i : 0..pid) { @ = $i; } }", MOST),
        ("begin { while (@ < 3) { @++; } }", MOST),
        ("begin { unroll(4) { for ($i : 0..10) { @ = $i; } } }", 40),
        ("let @m = hash(8); begin { @m[1] = 1; for ($k : @m) { @ = $k.0; } }", 12),
        ("macro m(n) { for ($j : 0..n) { print($j); } } begin { for ($i : 0..10) { m(7); } }", 80),
        ("fn f() : void { for ($i : 0..7) { @ = $i; } } begin { for ($i : 0..10) { f(); } f(); }", 87),
        ("begin { if (pid) { for ($i : 0..7) { @ = $i; } } else { for ($i : 0..8) { @ = $i; } } }", 15),
    ],
)
def test_most(text: str, most: int) -> None:
    assert _most(text) == most


NEST = "for ($i : 0..1000000) {{ {0} for ($j : 0..100) {{ @ = $j; }} }}"


def test_a_nest_of_constants_is_refused() -> None:
    assert messages(f"begin {{ {NEST.format('')} }}") == [
        "these loops make 1,000,000 × 100 iterations; all loops together may make 8,388,608 when a probe fires"
    ]
    assert not messages(f"config = {{ max_loop_iterations = 200000000 }} begin {{ {NEST.format('')} }}")


@pytest.mark.parametrize("way", ["if (@a) { break; }", "if (@a) { continue; }", "if (@a) { return; }"])
def test_a_nest_that_may_end_early_is_not(way: str) -> None:
    assert not messages(f"begin {{ @a = 1; {NEST.format(way)} }}")


# ------------------------------------------------------------------------------------------------------------ stack use


def stack_use_checked(text: str) -> CheckedProgram:
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), RecordedKernel(), Diagnostics())
    return pipeline.front_end(compilation).checked


def compile_text(text: str, *, sparing: bool) -> int:
    """Bytes of stack that a script needs."""
    code, _ = generator.generate(stack_use_checked(text), RecordedKernel(), CompileOptions(), sparing=sparing)
    module = target.parse(code)
    target.optimise(module)
    return target.stack_needed(target.elf(module), code)


def wide(count: int) -> str:
    """A script with so many variables that all are used again and again."""
    names = [f"$v{at}" for at in range(count)]
    first = " ".join(f"{name} = (int64)rand + {at};" for at, name in enumerate(names))
    mixed = " ".join(f"{name} = {name} ^ {names[(at * 7 + 1) % count]};" for at, name in enumerate(names))
    return f"begin {{ {first} for ($i : 0..3) {{ @c = count(); }} {mixed} print({' + '.join(names)}); exit(); }}"


def test_few_variables_take_little() -> None:
    assert 0 <= compile_text("begin { print(1); exit(); }", sparing=False) <= 64


def test_calls_add_up() -> None:
    flat = compile_text("kprobe:vfs_read { $a = arg0; print(str($a)); }", sparing=False)
    nested = compile_text(
        "fn show($a: uint64): uint64 { print(str($a)); return $a; } "
        "fn both($a: uint64): uint64 { return show($a) + 1; } "
        "kprobe:vfs_read { print(both(arg0)); }",
        sparing=False,
    )
    assert flat < nested <= target.STACK_LIMIT


def test_variables_and_copies_that_the_stack_has_no_room_for() -> None:
    text = wide(100)
    assert compile_text(text, sparing=False) > target.STACK_LIMIT
    assert compile_text(text, sparing=True) <= target.STACK_LIMIT
    assert generator.compile_program(stack_use_checked(text), RecordedKernel(), CompileOptions()).elf
    config = "config = { max_strlen = 64 } "
    text = config + "begin { @s = str(0); @t = ((int8)1, @s, (int8)2); print((@t.0, @t.1, @s)); exit(); }"
    assert compile_text(text, sparing=False) < 200


def test_what_cannot_be_helped_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "STACK_LIMIT", -1)
    with pytest.raises(TraceError, match="bytes of stack"):
        generator.compile_program(stack_use_checked(wide(5)), RecordedKernel(), CompileOptions())


def test_a_live_view_of_very_many_maps_has_the_names_of_calls() -> None:
    # The stack has no room for the addresses of so many double-buffered maps.
    maps = " ".join(f"@m{number}[pid] = count();" for number in range(90))
    options = CompileOptions(live=True)
    program = analyse(f"call:kernel:vfs_read {{ {maps} print(duration); }}", options).checked()
    manifest = generator.compile_program(program, RecordedKernel(), options).manifest
    assert manifest.calls_named
    assert not [spec for spec in manifest.maps if spec.inner]


# ----------------------------------------------------------------------------------------------------- evaluation order


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("$i = 1; print(($i++, $i, ++$i, $i--, $i));", (1, 2, 3, 3, 2)),
        ("@i = 1; print((@i++, @i, @i++));", (1, 2, 2)),
        ("@m[1] = 5; print((@m[1], { @m[1] = 6; 0 }, @m[1]));", (5, 0, 6)),
        ('$s = "x"; print(($s, { $s = "y"; 1 }));', (b"x", 1)),
        ("$t = (1, 2); print(($t, { $t = (3, 4); 1 }, $t));", ((1, 2), 1, (3, 4))),
    ],
)
def test_order(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_arguments_of_events_and_keys() -> None:
    found = ran('begin { $i = 1; printf("%d %d %d", $i++, $i++, $i); @m[$i++, $i++] = $i; }')
    ((_, arguments),) = found.values()
    assert arguments == [1, 2, 3]
    assert found.entries("@m") == {(3, 4): 3}, "the value comes before the key"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("$t = (1, 2); $t = ($t.1, $t.0); print($t);", (2, 1)),
        ("$t = (1, (2, 3)); $t = ($t.1.1, ($t.0, $t.1.0)); print($t);", (3, (1, 2))),
        ("@t = (1, 2); @t = (@t.1, @t.0); print((@t.0, @t.1));", (2, 1)),
        ("$t = (1, 2); $p = &$t; $t = ((*$p).1, (*$p).0); print($t);", (2, 1)),
        ('$s = "a"; print(($s, { $s = "b"; 1 }, $s));', (b"a", 1, b"b")),
        ("@t = (1, 2); @k[1] = @t; @t = (@k[1].1, @t.1); print((@t.0, @t.1));", (2, 2)),
        ('$s = "ab"; $u = "cd"; $s = $u; $u = "ef"; print($s);', b"cd"),
    ],
)
def test_what_is_read_was_not_changed_before(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_calls_that_change_what_was_read() -> None:
    body = '@m["k"] = (1, 2); $v = (5, 6); print(($v, find(@m, "k", $v), $v));'
    assert printed(body) == [((5, 6), True, (1, 2))]
