"""The passes run in order and stop after the first one with errors; deep trees are supported by every pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from tests.support.facts import RecordedKernel
from tests.support.rows import each_row
from tests.support.server import Server

N = 500
# fmt: off
DEEP = {
    "parentheses": ("begin { print(" + "(" * N + "7" + ")" * N + "); exit(); }", "7"),
    "blocks": ("begin { " + "{ " * N + "print(7);" + " }" * N + " exit(); }", "7"),
    "angle brackets": ("begin " + "< " * N + "print(7);" + " >" * N + "begin { exit(); }", "7"),
    "if": ("begin { " + "if (pid) { " * N + "print(7);" + " }" * N + " exit(); }", "7"),
    "minus": ("begin { print(" + "- " * N + "7); exit(); }", "7"),
    "not": ("begin { print(" + "!" * N + "pid); exit(); }", "true"),
    "and": ("begin { print(" + "pid && " * N + "true); exit(); }", "true"),
    "or of many": ("begin { print(" + " || ".join(f"pid == {2**22 + n}" for n in range(N)) + "); exit(); }", "false"),
    "keys": ("begin { @a[0] = 1; print(" + "@a[" * N + "1" + "]" * N + "); clear(@a); exit(); }", "1"),
    "block values": ("begin { $x = " + "{ " * N + "7" + " }" * N + "; print($x); exit(); }", "7"),
    "unroll": ("begin { " + "unroll(1) { " * N + "print(7);" + " }" * N + " exit(); }", "7"),
    "macros": ("macro f(x) { x } begin { print(" + "f(" * N + "7" + ")" * N + "); exit(); }", "7"),
    "casts": ("begin { print(" + "(int64)(int32)" * N + "7); exit(); }", "7"),
    "members": ("begin { print(curtask" + ".real_parent" * N + ".pid == -1); exit(); }", "false"),
    "pointer type": ("begin { print(sizeof(int8" + "*" * N + ")); exit(); }", "8"),
}
# fmt: on


NAMES = list(pipeline.PASSES)


def watched(text: str) -> tuple[pipeline.Compilation, list[str]]:
    """A compilation of *text*, and the list that gets the names of the passes it did."""
    names: list[str] = []
    source = Source("stdin", text, None)
    return pipeline.Compilation(
        source, CompileOptions(), RecordedKernel(), Diagnostics(), lambda name, _: names.append(name)
    ), names


def test_the_line_runs_each_pass_of_the_list_in_order() -> None:
    compilation, names = watched("begin { exit(); }")
    script = pipeline.back_end(compilation, pipeline.front_end(compilation))
    assert names == NAMES
    assert script.elf.startswith(b"\x7fELF")


def test_the_documents_name_the_passes_of_the_front_end() -> None:
    text = (Path(__file__).resolve().parent.parent / "docs" / "develop" / "architecture.md").read_text()
    section = text.partition("## Passes of the front end\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\w+) \| `", section, re.MULTILINE) == NAMES[:-1]


def test_a_listing_needs_no_analysis() -> None:
    compilation, names = watched("kprobe:vfs_* { $x = unknown; }")
    assert [target.probe for target in pipeline.find_programs(compilation).units[0].targets]
    assert names == NAMES[: NAMES.index("analysis")]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("begin { $x = ; }", "parse"),
        ('import "nowhere.bt"; begin { }', "imports"),
        ("config = { nothing = 1 } begin { }", "settings"),
        ('if comptime (1) { fail("no"); } begin { }', "conditions"),
        ("macro f(x) { x } begin { f(1, 2); }", "macros"),
        ("kprobe:nothing_of_this_name { }", "attach_points"),
        ("begin { print(unknown); }", "analysis"),
    ],
)
def test_the_line_ends_after_a_pass_that_found_errors(text: str, step: str) -> None:
    compilation, names = watched(text)
    with pytest.raises(ScriptError):
        pipeline.front_end(compilation)
    assert names == NAMES[: NAMES.index(step)]
    assert compilation.diagnostics.failed


@pytest.mark.kernel
@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_runs(name: str, server: Server, tmp_path: Path) -> None:
    script, expected = DEEP[name]
    (tmp_path / "deep.bt").write_text(script)
    result = server.run(
        ("-q", "deep.bt"), cwd=tmp_path, timeout=60, environment={"XDG_CACHE_HOME": str(tmp_path / ".cache")}
    )
    assert result.status == 0, result
    assert result.stdout.strip() == expected, result


@pytest.mark.kernel
def test_too_deep_is_a_message(server: Server, tmp_path: Path) -> None:
    (tmp_path / "deep.bt").write_text("begin { print(" + "1 + " * 20_000 + "1); exit(); }")
    result = server.run(("-q", "deep.bt"), cwd=tmp_path, timeout=60)
    assert result.status == 1
    assert "levels deep" in result.stderr
    assert "BUG" not in result.stderr


@each_row(
    ("text", "kernel"),
    [
        ("t:sched:none { @ = count(); }", True),
        ("t:none:* { @ = count(); }", True),
        ("k:none { @ = count(); }", True),
        ("t:sched:sched_switch { @ = args.none; }", True),
        ("begin { @ = curtask->none; }", True),
        ("begin { @ = ((struct none *)0)->a; }", True),
        ("begin { @ = offsetof(struct task_struct, none); }", True),
        ('begin { @ = kaddr("none"); }', True),
        ("t:sched:none { @ = count(); } t:sched:other { @ = count(); }", True),
        ("none:sched:none { @ = count(); }", False),
        ("uprobe:/bin/app:none { @ = count(); }", False),
        ("begin { @ = none; }", False),
        ("struct mine { int a; }; begin { @ = ((struct mine *)0)->none; }", False),
        ('begin { @ = 1; @ = "text"; }', False),
        ('t:sched:sched_switch { @ = args.none; @a = 1; @a = "text"; }', False),
        ("begin { @ = ; }", False),
    ],
)
def test_errors_that_another_kernel_may_not_have(text: str, kernel: bool) -> None:
    """If all are such, a fleet is asked all the same."""
    diagnostics = Diagnostics()
    compilation = pipeline.Compilation(Source("x", text), CompileOptions(ahead=True), RecordedKernel(), diagnostics)
    with pytest.raises(ScriptError):
        pipeline.front_end(compilation)
    assert diagnostics.kernel == kernel
