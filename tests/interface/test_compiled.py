from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pytrace
from pytrace.core.diagnostics import TraceError
from pytrace.core.options import Budget, CompileOptions, Rate, RunOptions
from pytrace.interface.compiled import Arguments, CompiledScript, _parameters, converted, read

SCRIPT = "BEGIN { @a[1] = count(); }\ninterval:s:1,end { @b = $1; }"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))


def compile_(script: Any, **options: Any) -> CompiledScript:
    return pytrace.compile(script, **options)


def test_a_script_tells_what_it_has() -> None:
    script = compile_(SCRIPT, parameters=[5])
    assert script.name == "script"
    assert script.probes == ("begin", "interval:s:1", "end")
    assert set(script.maps) == {"@a", "@b"}
    assert str(script.maps["@a"].value) == "count_t"
    assert script.maps["@b"].key is None
    assert {(program.kind, program.line) for program in script.programs} == {("begin", 1), ("interval", 2), ("end", 2)}
    assert all(program.instructions > 0 for program in script.programs)
    assert script.instructions == sum(program.instructions for program in script.programs)
    assert script.parameters == ("5",)
    assert repr(script) == "<CompiledScript 'script': 3 probes, maps @a, @b>"


def test_warnings_are_kept() -> None:
    script = compile_("begin { 1 + 1; }")
    assert any("not used" in text for text in script.warnings)


@pytest.mark.parametrize("given", [str, Path])
def test_a_file(tmp_path: Path, given: type) -> None:
    file = tmp_path / "x.bt"
    file.write_text("\ufeffbegin { exit(); }")
    script = compile_(given(file))
    assert (script.name, script.source.path) == (str(file), str(file))


def test_a_saved_script_is_a_file_that_runs(tmp_path: Path) -> None:
    compile_(SCRIPT).save(tmp_path / "saved")
    assert os.access(tmp_path / "saved", os.X_OK)
    opened = compile_(tmp_path / "saved", parameters=[7])
    assert (opened.probes, opened.parameters) == (("begin", "interval:s:1", "end"), ("7",))
    opened.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "saved").read_bytes()
    for options in ({"unsafe": True}, {"includes": ["x.h"]}, {"include_directories": ["x"]}, {"probe_filter": "x"}):
        with pytest.raises(TraceError, match="compiled already"):
            compile_(tmp_path / "saved", **options)
    with pytest.raises(TraceError, match="cannot write"):
        opened.save(tmp_path / "no" / "folder")


def test_what_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    for given, message in (
        (tmp_path / "none", "No such file"), (tmp_path, "is a directory"), ("", "No such file"),
        ("a\0b", "embedded null"), (tmp_path / "binary", "zero bytes"),
    ):  # fmt: skip
        with pytest.raises(TraceError, match=message):
            read(given)
    with pytest.raises(TraceError) as caught:
        read("begin")
    assert caught.value.hints == ("the text of a script has braces: begin { … }",)
    for wrong in (3, None, b"begin { }"):
        with pytest.raises(TypeError):
            compile_(wrong)


def test_options_that_the_script_declares() -> None:
    text = 'getopt("x|failed"); getopt("[ms]", 5); getopt("[pids...]"); interval:ms:$ms /getopt("ms") > 0/ { exit(); }'
    assert compile_(text, parameters={"x": True, "ms": 20, "pids": [1, 2]}).probes == ("interval:ms:20",)
    assert compile_(text).probes == ("interval:ms:5",)
    with pytest.raises(pytrace.ScriptError, match="operand ms needs an integer, not 'often'"):
        compile_(text, parameters={"ms": "often"})
    with pytest.raises(pytrace.ScriptError, match="unknown parameter --mss"):
        compile_(text, parameters={"mss": 1})
    named: dict[str, object] = {"pids": [1, 2]}
    assert _parameters(named) == ((), (("pids", "1\n2"),))


def test_parameters() -> None:
    assert _parameters([1, "a b"]) == (("1", "a b"), ())
    named: list[tuple[str, object]] = [("n", 3), ("flag", True), ("bare", None), ("off", False)]
    assert _parameters(dict(named)) == ((), (("n", "3"), ("flag", None), ("bare", None), ("off", "false")))
    for wrong in ("text", [None]):
        with pytest.raises(TypeError):
            _parameters(wrong)


@pytest.mark.parametrize("name", ["includes", "include_directories", "debuginfo", "no_features"])
def test_a_text_is_no_list_of_names(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a sequence"):
        compile_("begin { }", **{name: "x"})


def test_folders_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = Arguments(debuginfo=["/a", "+/b", "c"])
    assert converted(arguments, CompileOptions) == {"debuginfo": ("/a", "+/b", "c", f"{tmp_path}/c")}


def test_each_value_is_one_of_its_member() -> None:
    arguments = Arguments(
        command=["ls", "a b"], follow=True, unsafe=True, netns="x", include_directories=["a"], includes=["b.h"],
        probe_filter="x", budget="1%", over_budget="detach", max_rate={"uprobe:*": 5, "": 2.5}, debuginfo=["/c"],
        no_features=["btf"], pid=5, cached=False, parameters=["1"],
    )  # fmt: skip
    run = msgspec.convert(converted(arguments, RunOptions), RunOptions)
    assert (run.command, run.budget) == ("ls 'a b'", Budget(0.01, action="detach"))
    assert run.max_rate == (Rate(5, "uprobe:*"), Rate(2.5))
    options = msgspec.convert(converted(arguments, CompileOptions), CompileOptions)
    shared = ("follow", "no_features", "debuginfo")
    assert all(getattr(run, name) == getattr(options, name) == run.shared()[name] for name in shared)
    assert (options.unsafe, options.includes, options.no_features) == (True, ("b.h",), {"btf"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"no_features": ["nope"]}, "unknown feature 'nope'"), ({"over_budget": "stop"}, "over_budget is one of"),
        ({"budget": "much"}, "budget is a percentage, as '1%' or '1%machine', not 'much'"),
        ({"max_rate": 0}, "max_rate must be more than 0 hits per second"),
    ],
)  # fmt: skip
def test_values_that_no_option_has(arguments: Arguments, message: str) -> None:
    with pytest.raises((ValueError, TraceError), match=message):
        converted(arguments, RunOptions)


def test_scripts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_("begin { exit(); }")
    monkeypatch.setattr("pytrace.pipeline.compile_script", None)
    assert compile_("begin { exit(); }").instructions == first.instructions
    with pytest.raises(TypeError):
        compile_("begin { exit(); }", cached=False)
