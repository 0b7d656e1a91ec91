"""Shortcuts, shipped tools, and the text that runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytrace.cli import shortcuts, tools
from pytrace.cli.completion import attach_points, program_candidates
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS, help_text
from pytrace.cli.shortcuts import expand, top_script
from pytrace.core.diagnostics import TraceError
from tests.support.small_program import built

# ---------------------------------------------------------------------------------------------- shortcuts
# .


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-p 12 10 -o x.svg", "profile -o x.svg -F 99 -p 12 10"),
        ("-F 199 -c ./run -o x.html", "profile -o x.html -F 199 -c ./run"),
        ("--off-cpu -U 5 -o x.svg", "offcputime -o x.svg -U 5"),
        ("-p 12 --python 10 -o x.svg", "profile -o x.svg -F 99 -p 12 --python 10"),
        ("--wakeup -o x.svg -p 3", "offwaketime -o x.svg -p 3"),
        ("--alloc -c ls 3 -o x.svg", "mallocs -o x.svg -c ls --duration 3"),
        ("-e c:malloc -p 3 0.5 -o x.svg", "stackcount -o x.svg c:malloc -p 3 -D 0.5"),
        # A number after an option is the option's argument.
        ("-e c:malloc -p 3 -o x.svg", "stackcount -o x.svg c:malloc -p 3"),
        ("--over-time 10 -p 3 -o x.html", "profile -o x.html -F 99 --over-time 10 -p 3"),
        ("-f folded", "profile -F 99 -f folded"),
        ("--folded", "profile -F 99 --folded"),
    ],
)
def test_a_shortcut_is_the_command_line_of_a_tool(words: str, expected: str) -> None:
    assert expand(["flame", *words.split()]) == expected.split()


def test_go_has_an_allocator_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    built(tmp_path, "app", text='int table __attribute__((section(".gopclntab"))) = 1; int main(void) { return 0; }')
    assert expand(["flame", "--alloc", "-o", "x.svg", "-c", "./app -v"]) == [
        "mallocs", "-o", "x.svg", "-O", "./app", "-c", "./app -v",
    ]  # fmt: skip
    for words in ("-O libx.so -c ./app", "--obj=libx.so -c ./app", "-c ls", "-c ./absent", "-c '"):
        assert expand(["flame", "--alloc", "-o", "x.svg", *words.split()])[3:] == words.split(), words


def test_page_faults_are_counted_by_a_script() -> None:
    command = expand(["flame", "--faults", "-p", "3", "5", "-o", "x.svg"])
    assert command[:3] == ["-o", "x.svg", "-e"]
    assert "software:page-faults:1" in command[3]
    assert command[4:] == ["-p", "3", "--duration", "5"]
    command = expand(["flame", "--faults", "-c", "./run", "-o", "x.svg"])
    assert command[4:] == ["-c", "./run", "--follow"], "not those of the whole machine"


def test_stacks_are_whole_without_frame_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTRACE_STACK_UNWINDING", raising=False)
    monkeypatch.delenv("PYTRACE_PYTHON_FRAMES", raising=False)
    expand(["flame", "-o", "x.svg"])
    assert os.environ["PYTRACE_STACK_UNWINDING"] == "auto"
    assert os.environ["PYTRACE_PYTHON_FRAMES"] == "true"
    monkeypatch.setenv("PYTRACE_STACK_UNWINDING", "frame_pointers")
    expand(["flame", "-o", "x.svg"])
    assert os.environ["PYTRACE_STACK_UNWINDING"] == "frame_pointers", "the user's word"


def test_without_a_file_one_is_named() -> None:
    command = expand(["flame", "-p", "3"])
    assert command[1] == "-o"
    assert command[2].startswith("flame-")
    assert command[2].endswith(".html")


def test_names_that_are_free_and_that_nobody_else_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shortcuts.time, "strftime", lambda form: form.replace("%Y%m%d-%H%M%S", "NOW"))
    names = []
    for _ in range(2):
        names.append(expand(["heatmap", "biolatency"])[5])
        Path(names[-1]).with_suffix(".snapshots").mkdir()
    assert names == ["heatmap-NOW.html", "heatmap-NOW-2.html"]
    tmp_path.chmod(0o1777)
    shared = {expand(["flame"])[2] for _ in range(3)}
    assert len(shared) == 3
    assert all(re.fullmatch(r"flame-NOW-[0-9a-f]{8}\.html", name) for name in shared)


@pytest.mark.parametrize("words", ["-F 9 --alloc", "-F 9 --faults", "--alloc --faults", "--off-cpu -e c:malloc", "-F"])
def test_options_that_exclude_each_other_are_an_error(words: str) -> None:
    with pytest.raises(TraceError, match="pytrace flame: "):
        expand(["flame", *words.split()])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("biolatency -o x.html 10", "biolatency --save-every 1 x.snapshots -o x.html 10"),
        ("--every 0.5 -o a/x.htm -e PROGRAM", "--save-every 0.5 a/x.snapshots -o a/x.htm -e PROGRAM"),
    ],
)
def test_a_heat_map_is_a_run_that_saves_snapshots(words: str, expected: str) -> None:
    assert expand(["heatmap", *words.split()]) == expected.split()


@pytest.mark.parametrize(("words", "message"), [("", "needs a tool"), ("x.bt -o x.csv", "FILE.svg, not 'x.csv'")])
def test_a_heat_map_of_nothing_is_an_error(words: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        expand(["heatmap", *words.split()])


def test_all_names_are_shortcuts() -> None:
    assert list(shortcuts._EXPANSIONS) == list(SHORTCUTS)


# ---------------------------------------------------------------------------------------------- tools
# .


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three tools instead of those that come with pytrace."""
    for group, name, line in (
        ("files", "opens", "/* opens: files that are opened */"),
        ("files", "fsslower", "/*\n * fsslower: slow operations of file systems\n */"),
        ("scheduling", "queue", "#!/usr/bin/env pytrace\n// queue: time in the run queue"),
    ):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / f"{name}.bt").write_text(line + "\nbegin { }\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "time.bt").write_text("macro x() { 1 }")
    monkeypatch.setattr(tools, "FOLDER", str(tmp_path))
    monkeypatch.setattr(tools, "TRANSLATED", ())
    return tmp_path


def test_names(folder: Path) -> None:
    assert tools.path("opens") == str(folder / "files" / "opens.bt")
    assert tools.path("time") == tools.path("opensnoop") == ""
    assert "queue" in tools.names()
    assert "opens.bt" not in tools.names()
    assert "files/opens" not in tools.names()
    assert tools.names() == ["btrfsslower", "ext4slower", "fsslower", "nfsslower", "opens", "queue", "xfsslower"]


def test_names_with_implied_options(folder: Path) -> None:
    assert tools.resolve("ext4slower") == ("fsslower", ("-t", "ext4"))
    assert tools.resolve("opens") == ("opens", ())
    assert "xfsslower" in tools.names()
    assert "xfsdist" not in tools.names(), folder


def test_the_list_by_group(folder: Path) -> None:
    assert folder.exists()
    assert tools.listing() == (
        "scheduling:\n  queue     time in the run queue\n\n"
        "files:\n  fsslower  slow operations of file systems\n  opens     files that are opened\n\n"
        "pytrace NAME -h shows the options of a tool.\n"
    )


def test_the_list_of_those_with_a_word(folder: Path) -> None:
    assert folder.exists()
    assert tools.listing("QUEUE").startswith("scheduling:\n  queue  time")
    assert "files:" in tools.listing("opened")
    assert tools.listing("nothing") == (
        "No tool has 'nothing' in its name, summary or options; pytrace --tools lists all.\n"
    )


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("slow", "flame"), ("lock", "futexwait"), ("leak", "memleak"), ("fails", "opensnoop"),
        ("who deletes my file?", "filelife"), ("Why is my DISK slow", "biolatency"), ("network", "tcplife"),
        ("permission denied", "opensnoop"), ("dns", "gethostlatency"), ("garbage collection", "ugc"),
    ],
)  # fmt: skip
def test_the_list_answers_questions(question: str, first: str) -> None:
    lines = tools.listing(question).split("\n")
    assert lines[0] == f"for {question!r}:"
    assert first in {line.split()[0] for line in lines[1:3] if line}


def test_what_only_the_description_or_an_option_names_is_found() -> None:
    assert "opensnoop" in tools.listing("full-path") + tools.listing("full_path")


def test_answers_are_tools_that_there_are() -> None:
    known = {*tools.names(), *tools._COMMANDS}
    assert {name for names in tools.SYMPTOMS.values() for name in names.split()} <= known


def test_help_begins_with_what_people_ask() -> None:
    text = help_text()
    assert text.index("People ask") < text.index("pytrace flame") < text.index("usage:")
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in (*SUBCOMMANDS, *SHORTCUTS))
    assert all(len(line) <= 110 for line in text.partition("usage:")[0].split("\n"))


def test_all_tools_have_a_summary_and_a_name_that_is_free() -> None:
    for group, name, summary in tools.rows():
        assert summary, (group, name)
        assert tools.is_name(name)
        assert name not in (*SUBCOMMANDS, *tools.ALIASES)


def test_aliases_are_listed_when_they_are_looked_for() -> None:
    assert "ext4slower" not in tools.listing()
    lines = tools.listing("ext4").split("\n")
    assert lines[0] == "files:"
    assert "  ext4slower  the same as fsslower -t ext4" in lines


# ---------------------------------------------------------------------------------------------- live top
# .


EVENTS = {event for question in shortcuts._PANELS for events, _ in question.answers for event in events}


def test_each_question_has_a_map_of_its_own() -> None:
    text, missing = top_script(lambda _event: True)
    assert missing == []
    for name in ("@cpu", "@calls", "@files", "@disk_bytes", "@tcp_bytes"):
        assert f"{name}[pid, leader_comm" in text, "a row is of a process, which enter looks at"


def test_what_a_kernel_lacks_is_left_out_and_told() -> None:
    text, missing = top_script(lambda event: not event.startswith(("block:", "sock:sock_")))
    assert missing == ["block I/O"]
    assert "@disk" not in text
    assert "inet_sock_set_state" in text, "an older way"
    text, missing = top_script(lambda _event: False)
    assert missing == ["system calls", "files", "block I/O", "TCP"]
    assert text.count("[pid, leader_comm") == 1


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for event in EVENTS - {"block:block_rq_issue"}:
        folder = tmp_path / "events" / event.replace(":", "/")
        os.makedirs(folder)
        (folder / "format").touch()
    monkeypatch.setattr(shortcuts.fingerprints, "tracefs_root", lambda: str(tmp_path))
    monkeypatch.setattr(os, "isatty", lambda _descriptor: False)
    with pytest.raises(TraceError, match="pytrace top needs a terminal"):
        expand(["top"])
    monkeypatch.setattr(os, "isatty", lambda _descriptor: True)
    words = expand(["top", "-p", "12", "--duration", "3"])
    assert words[:4] == ["--live", "--no-self", "--yes", "-e"]
    assert "sock_send_length" in words[4]
    assert words[5:] == ["-p", "12", "--duration", "3"]
    assert capsys.readouterr().err == "Not shown, as this kernel has no tracepoints for it: block I/O\n"
    assert expand(["top", "--self"])[:3] == ["--live", "--yes", "-e"]


def test_it_takes_options_only() -> None:
    with pytest.raises(TraceError, match="takes options only, not 'biotop'"):
        expand(["top", "biotop"])
    with pytest.raises(SystemExit):
        expand(["top", "--help"])


# ---------------------------------------------------------------------------------------------- program text
# Completion inside programs and of attach points.


LISTED = (
    "tracepoint:sched:sched_switch", "tracepoint:sched:sched_wakeup", "tracepoint:signal:signal_generate",
    "rawtracepoint:vmlinux:sched_switch", "kprobe:vfs_read", "uprobe:/bin/bash:readline",
)  # fmt: skip
LONG = {"t": "tracepoint", "rt": "rawtracepoint", "k": "kprobe", "u": "uprobe"}


def listing(pattern: str) -> list[str]:
    """As ``-l`` does: by the provider's full name, the last part a prefix; the kernel's module may be left out."""
    provider, _, rest = pattern.rstrip("*").partition(":")
    provider = LONG.get(provider, provider)
    names = [name for name in LISTED if name.startswith(f"{provider}:")]
    return [name for name in names if name.startswith(f"{provider}:{rest}") or f":{rest}" in name]


@pytest.mark.parametrize(
    ("token", "found"),
    [
        ("tracep", ["tracepoint:"]),
        ("tracepoint:s", ["tracepoint:sched:", "tracepoint:signal:"]),
        ("t:sched:sched_s", ["t:sched:sched_switch"]),
        ("rawtracepoint:sched_sw", ["rawtracepoint:sched_switch"]),
        ("k:vfs", ["k:vfs_read"]),
        ("uprobe:/bin/bash:rea", ["uprobe:/bin/bash:readline"]),
        ("interval:m", ["interval:ms:"]),
        ("begi", ["begin"]),
        ("nosuch:", []),
    ],
)
def test_attach_points_grow_by_a_part(token: str, found: list[str]) -> None:
    assert attach_points(token, listing) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("k:vfs", ["k:vfs_read"]),
        ("k:vfs_read { @a = count(); } t:sched:sched_w", ["k:vfs_read { @a = count(); } t:sched:sched_wakeup"]),
        ("k:vfs_read { @reads = count(); print(@r", ["k:vfs_read { @reads = count(); print(@reads"]),
        ("begin { strft", ["begin { strftime("]),
        ("begin { in_sc", ["begin { in_scope"]),
        ("k:vfs_read /usern", ["k:vfs_read /username"]),
        ("begin { } k:vfs_read /pid == 1 && cpi", ["begin { } k:vfs_read /pid == 1 && cpid"]),
        ("uprobe:/bin/bash:readline /usern", ["uprobe:/bin/bash:readline /username"]),
        ("k:vfs_read /pid == 1/ { } k:vfs", ["k:vfs_read /pid == 1/ { } k:vfs_read"]),
        ("begin { @x = 1; } uprobe:/bin/bash:r", ["begin { @x = 1; } uprobe:/bin/bash:readline"]),
    ],
)
def test_programs(text: str, found: list[str]) -> None:
    assert program_candidates(text, listing) == found
