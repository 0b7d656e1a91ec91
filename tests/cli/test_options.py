"""Options of the command line, and the request that they make."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from pytrace.cli import messages, request, script_options
from pytrace.cli.options import OPTIONS, help_text, read
from pytrace.cli.script_options import ScriptWords, offered
from pytrace.core.diagnostics import TraceError
from pytrace.core.options import (
    Address,
    Budget,
    CompileOptions,
    FilterShape,
    ProcessFilters,
    Rate,
    RunOptions,
    TracingOptions,
)
from pytrace.core.script_options import TYPES, ScriptOption, Value
from pytrace.interface.compiled import Arguments
from pytrace.remote.fleet import NOT_HERE
from pytrace.remote.messages import Limits, Options
from pytrace.results import formats
from pytrace.results.formats import table
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- options
# Tests of the option table and of reading argv by it.


@each_row(
    ("argv", "values", "rest"),
    [
        (["-vq", "-fjson", "--output=x", "-e", "begin {}", "1", "--", "--n=2", "-x"],
         {"verbose": True, "quiet": True, "format": "json", "output": "x", "program": "begin {}"},
         (["1"], ["--n=2", "-x"], [])),
        (["-", "5", "-k"], {"warnings": [""]}, (["-", "5"], [], [])),
        (["--duration", "2", "begin.bt", "--for", "5"], {"duration": "5"}, (["begin.bt"], [], ["--duration"])),
        (["--for=1.5", "--form", "json"], {"duration": "1.5", "format": "json"}, ([], [], [])),
        (["--quie", "--dry"], {"quiet": True, "dry_run": True}, ([], [], [])),
        (["-I", "a", "-Ib"], {"include_directories": ["a", "b"]}, ([], [], [])),
        # Options mean what they say the last time.
        (["-f", "json", "-e", "begin { }", "-f", "text", "-e", "end { }"], {"format": "text", "program": "end { }"},
         ([], [], ["-f", "-e"])),
        (["--save-every", "9", "x", "--save-every", "5", "folder", "script.bt", "-q"],
         {"save_every": ["5", "folder"], "quiet": True}, (["script.bt"], [], ["--save-every"])),
        (["--save-every=5", "folder", "script.bt"], {"save_every": ["5", "folder"]}, (["script.bt"], [], [])),
        (["script.bt", "--", "-5", "--interval=5"], {}, (["script.bt"], ["-5", "--interval=5"], [])),
    ],
)  # fmt: skip
def test_forms_of_options_and_operands(
    argv: list[str], values: dict[str, object], rest: tuple[list[str], list[str], list[str]]
) -> None:
    line = read(argv)
    assert (line.values, (line.operands, line.after, list(line.repeated))) == (values, rest)


@each_row(
    ("argv", "part", "hint"),
    [
        (["--nosuch"], "unknown option --nosuch", ""),
        (["--quite"], "unknown option --quite", "--quiet"),
        (["-z"], "unknown option -z", ""),
        (["script.bt", "-5"], "unknown option -5", "go after --"),
        (["script.bt", "--interval=5"], "unknown option --interval", "go after --"),
        (["--debug"], "needs an argument", ""),
        (["-e"], "needs an argument", ""),
        (["--quiet=1"], "takes no argument", ""),
        (["--no"], "ambiguous", ""),
        (["--save-every"], "needs two arguments: SECONDS DIR", ""),
        (["--save-every", "5"], "needs two arguments: SECONDS DIR", ""),
        (["--save-every=5"], "needs two arguments: SECONDS DIR", ""),
        (["--save-every", "5", "-e", "begin { }"], "needs two arguments: SECONDS DIR", ""),
    ],
)
def test_mistakes(argv: list[str], part: str, hint: str) -> None:
    with pytest.raises(TraceError, match=part) as caught:
        read(argv)
    assert any(hint in text for text in caught.value.hints) or not hint


def test_help_names_every_option() -> None:
    text = help_text()
    for row in OPTIONS:
        if not row.hidden:
            assert (f"--{row.long}" if row.long else f"-{row.short}") in text
    assert all(len(line) <= 110 for line in text.splitlines())
    assert "--save-every SECONDS DIR" in text


def test_spellings_are_unique() -> None:
    shorts = [row.short for row in OPTIONS if row.short]
    longs = [row.long for row in OPTIONS if row.long]
    assert len(shorts) == len(set(shorts))
    assert len(longs) == len(set(longs))


# ---------------------------------------------------------------------------------------------- option subjects
# .


WITHOUT_NUMBER = ("disk", "interface", "syscall")


def check(type_: str, text: str, *, listed: bool = False, other_network: bool = False) -> None:
    default: Value = "" if listed or type_ in WITHOUT_NUMBER else 0
    option = ScriptOption(("x",), default, argument="X", type=type_, listed=listed)
    words = ScriptWords("tool", (option,), positional=False)
    words.set(option, "-x", text)
    words.named(())
    words.check(other_network=other_network)


def refused(type_: str, text: str, *, listed: bool = False) -> TraceError:
    with pytest.raises(TraceError) as found:
        check(type_, text, listed=listed)
    return found.value


@each_row(
    ("type_", "text", "message", "hint"),
    [
        ("pid", str(os.getpid()), "", ""),
        ("pid", str(threading.get_native_id()), "", ""),
        ("cpu", "0", "", ""),
        ("interface", "lo", "", ""),
        ("syscall", "read,write", "", ""),
        ("port", "80,443", "", ""),
        ("pid", "4194304", "there is no process or thread 4194304", ""),
        ("cpu", "9999", "there is no CPU 9999", "CPUs of this machine are 0"),
        ("disk", "nodisk", "there is no disk nodisk", ""),
        ("interface", "lo,nolink", "there is no network interface nolink", ""),
        ("syscall", "raed", "there is no system call raed", "'read'"),
    ],
)
def test_what_is_not_there_is_named(type_: str, text: str, message: str, hint: str) -> None:
    if not message:
        check(type_, text, listed="," in text)
        return
    error = refused(type_, text, listed="," in text)
    assert error.message == f"option -x: {message}"
    assert any(hint in words for words in error.hints) or not hint


def test_partitions_lead_to_their_disk(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = os.fspath(tmp_path)
    os.makedirs(f"{root}/devices/sda/sda1")
    with open(f"{root}/devices/sda/sda1/partition", "w", encoding="ascii"):
        pass
    os.mkdir(f"{root}/block")
    os.symlink(f"{root}/devices/sda", f"{root}/block/sda")
    os.symlink(f"{root}/devices/sda/sda1", f"{root}/block/sda1")
    monkeypatch.setattr(script_options, "BLOCK", f"{root}/block")
    check("disk", "/dev/sda")
    assert refused("disk", "sda1").hints == ("sda1 is a partition: its I/O is counted for the disk sda",)
    assert refused("disk", "sdaa").hints == ("did you mean 'sda'?",)
    assert refused("disk", "nvme0n1").hints == ("disks of this machine are sda",)


def test_interfaces_of_another_namespace_are_not_looked_for() -> None:
    check("interface", "nolink", other_network=True)


def test_things_of_this_machine() -> None:
    assert {str(cpu) for cpu in os.sched_getaffinity(0)} <= set(offered("cpu"))
    assert "lo" in offered("interface")
    assert {"ENOENT", "EPERM"} <= set(offered("errno"))
    assert {"SIGTERM", "TERM"} <= set(offered("signal"))


def test_partitions_are_no_disks() -> None:
    assert not [name for name in offered("disk") if os.path.exists(f"/sys/class/block/{name}/partition")]


@each_row("kind", TYPES)
def test_each_type_has_an_answer(kind: str) -> None:
    assert len(set(offered(kind))) == len(offered(kind))


# ---------------------------------------------------------------------------------------------- request
# Tests of checking options and finding the script.


@each_row(
    ("argv", "part"),
    [
        (["-f", "xml"], "-f does not accept 'xml'"),
        (["-f", "json:x"], "format json has no option 'x'"),
        (["-f", "folded:x"], "format folded has no option 'x'"),
        (["-f", "folded", "--test"], "-f folded is for rows and maps"),
        (["-f", "csv", "--bench"], "-f csv is for rows and maps"),
        (["-B", "some"], "-B does not accept 'some'"),
        (["-p", "x1"], "needs a process id"),
        (["-p", "0"], "out of range"),
        (["-p", "99999999"], "out of range"),
        (["-p", "1", "-c", "ls"], "cannot be used together"),
        (["-c", " "], "needs a command"),
        (["--follow"], "needs -p or -c"),
        (["-k", "-k"], "no longer"),
        (["-k", "--no-warnings"], "cannot be used together"),
        (["--mode", "fast"], "unknown mode"),
        (["--test", "--bench"], "only one mode"),
        (["-d", "nothing"], "unknown debug stage"),
        (["--no-feature", "magic"], "unknown feature"),
        (["--save", ""], "--save needs the name of a file"),
        (["--save", "-"], "--save needs the name of a file"),
        (["-o", "x.png"], "no format has the suffix '.png' of 'x.png'"),
        (["-o", "x.json.gz"], "no format has the suffix '.gz'"),
        (["--save-every", "often", "x"], "--save-every needs a number of seconds, not 'often'"),
        (["--save-every", "0", "x"], "needs 0.1 seconds at least"),
        (["--save-every", "nan", "x"], "needs a number of seconds"),
        (["--save-every", "inf", "x"], "needs a number of seconds"),
        (["--save-every", "1", ""], "needs the name of a directory"),
        (["--save", "x", "--test"], "not for test mode"),
        (["--save-every", "1", "x", "--fmt"], "not for format mode"),
        (["--max-memory", "much"], "--max-memory: 'much' is not an amount of memory"),
        (["--max-memory", "0"], "--max-memory: '0' is no memory"),
        (["--max-memory", "101%"], "--max-memory: '101%' is more than all memory"),
        (["--watchdog", "x"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not 'x'"),
        (["--watchdog", "0.1"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not '0.1'"),
        (["--watchdog", "nan"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not 'nan'"),
        (["--watchdog", "-1"], "--watchdog needs 0, or a number of seconds of 0.5 at least, not '-1'"),
        (["--budget", "1"], "--budget needs a percentage, not '1'"),
        (["--budget", "x%"], "--budget needs a percentage"),
        (["--budget", "0%"], "--budget needs a percentage"),
        (["--budget", "1%cpu"], "--budget needs a percentage"),
        (["--budget", "1%", "--over-budget", "stop"], "--over-budget does not accept 'stop'"),
        (["--over-budget", "detach"], "--over-budget needs --budget"),
        (["--max-rate", "fast"], "--max-rate needs a number of hits per second, not 'fast'"),
        (["--max-rate", "uprobe:/bin/x:f"], "--max-rate needs a number of hits per second"),
        (["--max-rate", "0/s"], "--max-rate needs a number of hits per second"),
        (["--max-rate", "nan/s"], "--max-rate needs a number of hits per second"),
        (["--metrics", "9435"], "--metrics needs an address and a port, not '9435'"),
        (["--metrics", ":9435", "--test"], "--metrics is for a run of the script, not for test mode"),
    ],
)
def test_refused_options(argv: list[str], part: str) -> None:
    with pytest.raises(TraceError, match=part):
        request.run_options(read(argv))


def test_formats_are_named_where_there_is_no_such(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as found:
        request.run_options(read(["-f", "foldd"]))
    assert found.value.hints[0] == "did you mean 'folded'?"
    assert {"text", "json", "csv", *(row.name for row in table.FORMATS)} <= set(
        found.value.hints[1].removeprefix("it takes ").split(", ")
    )


@each_row(
    ("argv", "form"),
    [
        ([], "text"),
        (["-o", "x"], "text"),
        (["-o", "-"], "text"),
        (["-o", "x.bt.log"], "text"),
        (["-o", "x.unknown"], "text"),
        (["-o", "x.json"], "json"),
        (["-o", "x.2026.JSON"], "json"),
        (["-o", "x.y/z.csv"], "csv"),
        (["-o", "x.speedscope.json"], "speedscope"),
        (["-o", "x.pb.gz"], "pprof"),
        (["-o", "x.folded", "-f", "json"], "json"),
        (["-o", "x.json", "-f", "folded:process"], "folded:process"),
        (["-o", "x.svg", "-f", "text"], "text"),
        (["-o", "x.json", "--fmt"], "text"),
        (["-o", "x.pb.gz", "--bench"], "text"),
    ],
)
def test_the_format_is_that_of_f_or_of_the_file(argv: list[str], form: str) -> None:
    assert request.run_options(read(argv)).format == form


@pytest.mark.parametrize("argv", [[], ["-o", "x.log"], ["-o", "x.json"], ["-f", "csv", "-o", "x"], ["-f", "json"]])
def test_ordinary_runs_do_without_the_table(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytrace.results.formats.table", None)
    monkeypatch.delattr(formats, "table")
    request.run_options(read(argv))
    with pytest.raises(ImportError):
        request.run_options(read(["-o", "x.folded"]))


def test_common_suffixes_stand_for_what_the_table_says() -> None:
    for suffix, name in request._BY_SUFFIX.items():
        row = table.by_suffix(f"x{suffix}")
        assert row is None or row.name == name


def test_all_stages() -> None:
    assert "asm" in request.run_options(read(["-d", "all"])).debug


@each_row(
    ("argv", "name", "value"),
    [
        (["--save", "out"], "save", "out"),
        (["--save-every", "2.5", "folder"], "save_every", (2.5, "folder")),
        ([], "watchdog", None),
        (["--watchdog", "0"], "watchdog", 0),
        (["--watchdog", "2.5"], "watchdog", 2.5),
        ([], "max_memory", ""),
        (["--max-memory", "10%"], "max_memory", "10%"),
        ([], "metrics", None),
        (["--metrics", "[::1]:9435"], "metrics", Address("::1", 9435)),
        (["-d", "codegen,verifier"], "debug", {"ir", "verifier"}),
    ],
)
def test_options_of_a_run(argv: list[str], name: str, value: object) -> None:
    assert getattr(request.run_options(read(argv)), name) == value


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], None),
        (["--budget", "1%"], Budget(0.01)),
        (["--budget", "2.5%machine"], Budget(0.025, machine=True)),
        (["--budget", "200%", "--over-budget", "detach"], Budget(2.0, action="detach")),
    ],
)
def test_budget(argv: list[str], expected: Budget | None) -> None:
    run = request.run_options(read(argv))
    assert run.budget == expected
    sampled = expected is not None and expected.action == "sample"
    assert request.compile_options(read(argv), run, None).sampled is sampled


def test_rates() -> None:
    line = read(["--max-rate", "1000/s", "--max-rate", "t:a=b:*=0.5/s", "--max-rate", "7"])
    run = request.run_options(line)
    assert run.max_rate == (Rate(1000.0), Rate(0.5, "t:a=b:*"), Rate(7.0))
    assert request.compile_options(line, run, None).limited
    assert not request.compile_options(read([]), request.run_options(read([])), None).limited


def test_a_run_knows_its_script(tmp_path: Path) -> None:
    path = tmp_path / "x.bt"
    path.write_text("begin { }")
    for words, name in (([str(path)], str(path)), (["-e", "begin { }"], "-e")):
        line = read([*words, "1", "--", "--n=3", "--flag"])
        options = request.of_script(request.run_options(line), request.script(line), line)
        assert (options.script, options.text, options.parameters) == (name, "begin { }", ("1", "--n=3", "--flag"))


def test_parameters_before_and_after_the_dashes() -> None:
    script = request.script(read(["-e", "begin {}", "1", "two", "--", "--n=3", "four", "--flag", "--help"]))
    assert script.source.name == "stdin"
    assert script.positional == ("1", "two", "four")
    assert script.named == (("n", "3"), ("flag", None))
    assert script.wants_help


def test_a_file_is_the_first_operand(tmp_path: Path) -> None:
    path = tmp_path / "x.bt"
    # A byte order mark is skipped.
    path.write_bytes(b"\xef\xbb\xbf#!/usr/bin/env pytrace\nbegin { print(\"\xff\"); }")
    script = request.script(read([str(path), "7"]))
    assert (script.source.name, script.positional) == (str(path), ("7",))
    assert script.source.text.startswith("#!")
    assert script.source.text.encode("utf-8", "surrogateescape").endswith(b'\xff"); }')


@each_row(
    ("operands", "message", "hint"),
    [
        ([], "no script given", ""),
        (["{tmp}/none"], "cannot read script", ""),
        (["{tmp}"], "is a directory", ""),
        (["begin { exit(); }"], "begin", "-e"),
    ],
)
def test_missing_scripts(operands: list[str], message: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        request.script(read([word.replace("{tmp}", str(tmp_path)) for word in operands]))
    assert any(hint in text for text in caught.value.hints) or not hint


def test_checks_level_follows_the_warning_options() -> None:
    levels = []
    for argv in (["--no-warnings"], [], ["-k"]):
        line = read([*argv, "-e", "begin {}"])
        levels.append(request.compile_options(line, request.run_options(line), request.script(line)).checks)
    assert levels == [0, 1, 2]


def test_the_format_of_the_script_counts_where_the_command_line_names_none() -> None:
    wanted = "folded:ordered"
    assert request.in_format(RunOptions(), wanted).format == wanted
    assert request.in_format(RunOptions(format="folded"), wanted).format == wanted  # by the suffix of -o
    assert request.in_format(RunOptions(), "csv").format == "csv"
    for options in (RunOptions(format="json"), RunOptions(format="pprof"), RunOptions(mode="test")):
        assert request.in_format(options, wanted) == options
    assert request.in_format(RunOptions(), "") == RunOptions()
    with pytest.raises(TraceError, match="-f does not accept 'xml'"):
        request.in_format(RunOptions(), "xml")


# ---------------------------------------------------------------------------------------------- selection
# Options that select processes, and --duration.


def test_an_option_has_one_name_on_the_command_line_in_python_and_in_messages() -> None:
    keys = {row.key for row in OPTIONS}
    own = {"parameters", "pids", "own_threads", "cached"}
    assert Arguments.__annotations__.keys() - own <= keys
    assert {*Options.__struct_fields__} - {"measure"} <= keys
    of_machines = {"heartbeat", "every", "bytes", "events"}
    assert {*Limits.__struct_fields__} - of_machines <= {row.key for row in OPTIONS if row.many_hosts}
    of_one_host = {row.key for row in OPTIONS if not row.many_hosts} & Arguments.__annotations__.keys()
    # Groups and containers of each host have other names, which a program may know.
    assert of_one_host - {"cgroup", "container"} | {"pids", "cached", "own_threads"} == NOT_HERE


EXAMPLES = {
    "duration": ["2"], "command": ["ls"], "format": ["json"], "output": ["x"], "save": ["x"], "save_every": ["5", "x"],
    "metrics": [":1"], "buffering": ["none"], "budget": ["1%"], "max_rate": ["5"], "no_features": ["btf"],
    "traceable_functions": ["x"], "debuginfo": ["a:/b"], "max_memory": ["1G"], "watchdog": ["5"], "mode": ["test"],
    "debug": ["ast"], "dwarf_pids": ["5"], "netns": ["x"], "include_directories": ["x"], "includes": ["x"],
    "probe_filter": ["x"],
}  # fmt: skip


@pytest.mark.parametrize("kind", [RunOptions, CompileOptions])
def test_each_value_has_the_type_of_its_member(kind: type[TracingOptions]) -> None:
    # -k and --no-warnings make one member together.
    rows = [row for row in OPTIONS if row.key in kind.__struct_fields__ and row.key != "warnings"]
    for row in rows:
        line = read([f"--{row.long}", *EXAMPLES.get(row.key, ())])
        assert list(line.options(kind)) == [row.key]
        value = getattr(msgspec.convert(line.options(kind), kind), row.key)
        assert value != getattr(kind(), row.key), row.key


def test_nothing_is_selected() -> None:
    assert request.process_filters(read([])) == ProcessFilters()


@pytest.mark.parametrize("argv", [["-p", "5,6", "-p7"], ["--pid", "5", "-p", "6, 7,5"]])
def test_several_processes(argv: list[str]) -> None:
    line = read(argv)
    assert request.process_filters(line).pids == (5, 6, 7)
    run = request.run_options(line)
    options = request.compile_options(line, run, None)
    assert (run.filters.pids, options.filters.pid, options.shape.pids) == ((5, 6, 7), 5, 4)


def test_all_filters() -> None:
    argv = ["--comm", "a", "--comm=b", "--uid", "root", "--uid", "7", "--netns", "/proc/self/ns/net"]
    found = request.process_filters(read([*argv, "--exec-wait", "/usr/bin/a-rather-long-name"]))
    own = os.stat("/proc/self/ns/net").st_ino
    assert found == ProcessFilters((), (0, 7), ("a", "b"), (), (own,), "a-rather-long-n")
    run = request.run_options(read([*argv, "--exec-wait", "x"]))
    assert run.follow
    shape = request.compile_options(read(argv), run, None).shape
    assert shape == FilterShape(uids=2, comms=2, namespaces=1, awaited=True)


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["-p", "1,x"], "needs a process id, not 'x'"),
        (["-p", "1,,2"], "needs a process id, not ''"),
        (["-p", "1", "--exec-wait", "ls"], "cannot be used together"),
        (["--exec-wait", "/"], "needs the name of a program"),
        (["--comm", ""], "needs the name of a command"),
        (["--comm", "x" * 16], "the kernel keeps 15"),
        (["--uid", "nobody-at-all"], "there is no user 'nobody-at-all'"),
        (["--uid", "4294967295"], "out of range"),
        (["--netns", "no-such-namespace"], "there is no network namespace"),
        *((["--comm", "x", *(f"--comm=c{number}" for number in range(64))], "64 values at most") for _ in range(1)),
    ],
)
def test_wrong_values(argv: list[str], part: str) -> None:
    with pytest.raises(TraceError, match=part):
        request.process_filters(read(argv))


NO_DURATIONS = ("", "x", "0", "-1", "inf", "nan", "1e1", "5x")


@each_row(("text", "seconds"), [
    ("2", 2.0), ("0.25", 0.25), ("5s", 5.0), ("500ms", 0.5), ("1.5m", 90.0), *((text, 0.0) for text in NO_DURATIONS)
])  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    line = read(["--duration", text])
    if seconds:
        assert line.argument("duration", float) == seconds
    else:
        with pytest.raises(TraceError, match="--duration needs a number of seconds"):
            line.argument("duration", float)


# ---------------------------------------------------------------------------------------------- messages
# .


def test_warnings_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    messages.warn(["odd"], RunOptions())
    messages.warn(["hidden"], RunOptions(warnings=False))
    assert capsys.readouterr().err == "WARNING: odd\n"


def test_errors_have_hints(capsys: pytest.CaptureFixture[str]) -> None:
    messages.show_error(TraceError("wrong", hints=("do this",)))
    assert capsys.readouterr().err == "ERROR: wrong\nHINT: do this\n"


def test_files_are_written_whole_with_the_right_mode(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        messages.write_file(str(tmp_path / "plain"), b"data")
        messages.write_file(str(tmp_path / "tool"), b"data", executable=True)
    finally:
        os.umask(before)
    assert (tmp_path / "plain").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "tool").stat().st_mode) == 0o755
    assert sorted(os.listdir(tmp_path)) == ["plain", "tool"]


def test_what_is_no_regular_file_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    messages.write_file(str(pipe), b"data")
    reader.join(5)
    assert got == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    messages.write_file(str(tmp_path / "link"), b"data")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"data"


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "file", tmp_path):
        with pytest.raises(TraceError, match="cannot write"):
            messages.write_file(str(path), b"data")
    assert os.listdir(tmp_path) == []
