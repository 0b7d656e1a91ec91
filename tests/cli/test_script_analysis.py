"""What editors are told about a text, by position: names, types, definitions and what may be typed."""

from __future__ import annotations

import random

import pytest

from pytrace import pipeline
from pytrace.cli.script_analysis import Analysis, attach_point
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import ExpandedSpan, Source
from pytrace.frontend.syntax import nodes
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.running import ROOT

SCRIPT = """\
config = { max_map_keys = 100 }
// twice the value
macro double(x) { x * 2 }
fn add($a : int64) : int64 { return $a + 1; }
tracepoint:syscalls:sys_enter_openat /pid == 1/ {
  $name = str(args.filename);
  @opens[comm, $name] = count();
  $parent = curtask.real_parent;
  printf("%s %d\\n", $parent.comm, double(3) + add(4) + args.flags & O_CLOEXEC);
}
end { clear(@opens); }
"""


@pytest.fixture(scope="module")
def kernel() -> LiveKernel:
    return LiveKernel()


def at(text: str, mark: str) -> tuple[str, int]:
    """The text without the character ``¦`` of *mark*, and the offset where it stood."""
    start = text.index(mark.replace("¦", ""))
    return text, start + mark.index("¦")


@pytest.mark.parametrize(
    ("mark", "kind", "type_", "document"),
    [
        ("max_ma¦p_keys", "setting", "default: 4096", ""),
        ("dou¦ble(3)", "macro", "macro double(x)", "twice the value"),
        ("ad¦d(4)", "function", "fn add($a : int64) : int64", ""),
        ("$na¦me = str", "variable", "string[1024]", ""),
        ("args.filen¦ame", "member", "int8 *", "argument of the probe"),
        ("@ope¦ns[comm", "map", "@opens[(string[16],string[1024])]: count_t", ""),
        ("clear(@op¦ens)", "map", "@opens[(string[16],string[1024])]: count_t", ""),
        ("$parent.co¦mm", "member", "string[16]", "struct task_struct"),
        ("real_pa¦rent", "member", "struct task_struct *", "struct task_struct"),
        ("O_CLO¦EXEC", "constant", "int32", "524288 (0x80000)"),
        ("prin¦tf(", "builtin", "", "printf("),
        ("sys_enter_op¦enat", "probe", "", "args.filename"),
        ("$¦a + 1", "variable", "int64", ""),
    ],
)
def test_names_have_types_and_documents(kernel: LiveKernel, mark: str, kind: str, type_: str, document: str) -> None:
    text, offset = at(SCRIPT, mark)
    symbol = Analysis(text, None, kernel).symbol(offset)
    assert symbol is not None
    assert (symbol.kind, symbol.type) == (kind, type_ if kind != "builtin" else symbol.type)
    assert document in symbol.document


@pytest.mark.parametrize(
    ("mark", "place"),
    [
        ("dou¦ble(3)", "double(x)"),
        ("ad¦d(4)", "add($a"),
        ("$na¦me] =", "$name = str"),
        ("clear(@op¦ens)", "@opens[comm"),
    ],
)
def test_definitions(kernel: LiveKernel, mark: str, place: str) -> None:
    text, offset = at(SCRIPT, mark)
    symbol = Analysis(text, None, kernel).symbol(offset)
    assert symbol is not None
    assert symbol.definition is not None
    assert symbol.definition.start == SCRIPT.index(place)


def test_uses_of_a_variable_are_those_of_its_scope(kernel: LiveKernel) -> None:
    text = "begin { $x = 1; print($x); } end { $x = 2; print($x); @x = $x; }"
    analysis = Analysis(text, None, kernel)
    symbol = analysis.symbol(text.index("$x"))
    assert symbol is not None
    assert [span.start for span in analysis.uses(symbol)] == [8, 22]
    other = analysis.symbol(text.rindex("$x"))
    assert other is not None
    assert len(analysis.uses(other)) == 3


def test_inferred_types_are_shown_once_and_not_where_they_are_written(kernel: LiveKernel) -> None:
    text = "begin { let $a: uint8 = 1; let $b = 2; $c = (1, comm); print(($a, $b, $c)); $c = (2, comm); }"
    hints = dict(Analysis(text, None, kernel).hints())
    assert hints == {text.index("$b") + 2: ": int8", text.index("$c") + 2: ": (int8,string[16])"}


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("tracepoint:syscalls:sys_enter_openat { $f = args.¦", "filename"),
        ("tracepoint:syscalls:sys_enter_openat { $f = args.fl¦; print($f) }", "flags"),
        ("begin { $t = curtask; print($t->re¦); }", "real_parent"),
        ("begin { $t = curtask; print($t.real_parent.¦) }", "comm"),
        ("begin { print(((struct task_struct *)0x10)->¦) }", "tgid"),
        ("begin { @a = (n=1, m=2); print(@a.¦); }", "m"),
        ("begin { @latency = 1; print(@l¦); }", "@latency"),
        ("begin { $seen = 1; print($¦); }", "$seen"),
        ("begin { @ = hi¦ }", "hist"),
        ("config = { max_st¦", "max_strlen"),
        ("begin { print(sizeof(struct task_str¦)) }", "task_struct"),
        ("macro own(x) { x } begin { ow¦ }", "own"),
    ],
)
def test_what_may_be_typed(kernel: LiveKernel, typed: str, name: str) -> None:
    offset = typed.index("¦")
    text = typed.replace("¦", "")
    assert name in [item.name for item in Analysis(text, None, kernel).candidates(text, offset)]


@pytest.mark.parametrize("typed", ['begin { print("@a¦") }', "begin { } // pri¦", "begin { /* pri¦ */ }"])
def test_nothing_in_strings_and_comments(kernel: LiveKernel, typed: str) -> None:
    offset, text = typed.index("¦"), typed.replace("¦", "")
    assert Analysis(text, None, kernel).candidates(text, offset) == []


@pytest.mark.parametrize(
    ("typed", "point"),
    [
        ("tracepoint:sysc¦", "tracepoint:sysc"),
        ("begin { } k¦", "k"),
        ("begin { }\nkprobe:a, kprobe:b¦", "kprobe:b"),
        ("uprobe:/bin/ba¦", "uprobe:/bin/ba"),
        ("begin { pri¦", None),
        ("kprobe:a /pi¦", None),
    ],
)
def test_where_an_attach_point_is_typed(typed: str, point: str | None) -> None:
    assert attach_point(typed.replace("¦", ""), typed.index("¦")) == point


@pytest.mark.parametrize("mistake", ["$y = nothing();", "printf(;", "@opens = 7;", "$parent.nosuch;", 'print("a;'])
def test_names_are_known_beside_a_mistake(kernel: LiveKernel, mistake: str) -> None:
    text = SCRIPT.replace("  printf(", f"  {mistake}\n  printf(")
    analysis = Analysis(text, None, kernel)
    assert analysis.diagnostics.failed
    symbol = analysis.symbol(text.index("$name = str") + 2)
    assert symbol is not None
    assert symbol.type == "string[1024]"


def test_messages_are_those_of_a_compilation(kernel: LiveKernel) -> None:
    for text in ("begin { $x = 1; $x = comm; }", "begin { f(1) } end { g(2) }", "begin {", "k:nosuch { }", ""):
        analysis = Analysis(text, None, kernel)
        diagnostics = Diagnostics()
        compilation = pipeline.Compilation(Source("stdin", text), CompileOptions(), kernel, diagnostics)
        with pytest.raises(pipeline.ScriptError):
            pipeline.front_end(compilation)
        told = [(item.message, item.span.start, item.span.end, item.hints) for item in analysis.diagnostics.items]
        assert told == [(item.message, item.span.start, item.span.end, item.hints) for item in diagnostics.items]


FILES = ("files/opensnoop", "block/biosnoop", "scheduling/runqlat", "network/tcplife", "memory/memleak")


@pytest.mark.parametrize("name", FILES)
def test_names_are_what_the_compiler_resolved(kernel: LiveKernel, name: str) -> None:
    """At random places of tools: types, definitions and completions are those of the typed program."""
    path = ROOT / "pytrace/tools" / f"{name}.bt"
    text = path.read_text()
    source = Source(path.name, text, str(path))
    compilation = pipeline.Compilation(source, CompileOptions(), kernel, Diagnostics())
    checked = pipeline.front_end(compilation).checked
    places = [
        node
        for unit in checked.units
        for node in nodes.walk(unit.body)
        if node.span.source is source and not isinstance(node.span, ExpandedSpan)
        and isinstance(node, nodes.FieldAccess | nodes.Variable | nodes.MapRef) and node in checked.types
        # What a call: became has places of other words.
        and node.span.text.endswith(getattr(node, "shown", node.name))
    ]  # fmt: skip
    assert places
    analysis = Analysis(text, str(path), kernel)
    for node in random.Random(name).sample(places, min(60, len(places))):
        wanted = node.name if not isinstance(node, nodes.Variable) else f"${node.shown}"
        offset = node.span.end - 1 if isinstance(node, nodes.FieldAccess) else node.span.start + 1
        symbol = analysis.symbol(offset)
        assert symbol is not None, node.span
        assert symbol.name == wanted
        if isinstance(node, nodes.MapRef):
            assert str(checked.maps[node.name].value) in symbol.type
        else:
            assert symbol.type == str(checked.types[node])
        if isinstance(node, nodes.Variable):
            assert symbol.definition is not None
            assert symbol.definition.start == checked.variables[node].span.start
        end = node.span.start + len(wanted) if not isinstance(node, nodes.FieldAccess) else node.span.end
        offered = [item.name for item in analysis.candidates(text, end - (len(wanted) > 1))]
        assert wanted in offered, (node.span, wanted)
