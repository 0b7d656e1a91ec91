"""What fits at the cursor of a command line, and the completions that shells load."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytrace.cli import completion
from pytrace.cli.completion import answer, split
from pytrace.cli.options import OPTIONS
from tests.support.patience import patience

SCRIPT = """\
getopt("x|failed", false, "only failed");
getopt("s|sort=COLUMN", "all", "order", ("all", "reads"));
getopt("<db>", "", "which", ("mysql", "postgres"));
begin { exit(); }
"""


def texts(line: str, shell: str = "zsh") -> list[str]:
    return [text.partition("\t")[0] for text in answer(shell, line).splitlines()]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "own.bt"
    path.write_text(SCRIPT)
    return path


def test_first_words_are_tools_subcommands_and_files() -> None:
    assert {"loads", "show", "merge", "flame", ":files"} <= set(texts("pytrace "))
    assert "loads\t" in answer("fish", "pytrace loa")
    assert texts("pytrace loa") == ["loads", ":files"]


def test_options_of_a_script_come_first_and_take_letters(script: Path) -> None:
    found = texts(f"pytrace {script} -")
    assert found[:4] == ["--failed", "-x", "--sort", "-s"]
    assert found.count("-s") == 1
    assert "--format" in found


def test_choices_of_options_and_operands(script: Path) -> None:
    assert texts(f"pytrace {script} --sort ") == ["all", "reads"]
    assert texts(f"pytrace {script} --sort=r") == ["--sort=reads"]
    assert texts(f"pytrace {script} -xs r") == ["reads"]
    assert texts(f"pytrace {script} -x my") == ["mysql"]
    assert texts(f"pytrace {script} mysql ") == [":files"]


TYPED = """\
getopt("C|cpu=CPU:cpu", -1, "one CPU");
getopt("i|interfaces=NAMES:interface,...", "", "interfaces");
getopt("s|signal=NAME:signal", 15, "a signal");
getopt("P|of=PID:pid", 0, "a process");
getopt("t|text=TEXT", "", "any text");
begin { exit(); }
"""


def test_values_by_the_type_of_an_option(tmp_path: Path) -> None:
    path = tmp_path / "typed.bt"
    path.write_text(TYPED)
    assert "0" in texts(f"pytrace {path} -C ")
    assert texts(f"pytrace {path} --interfaces l") == ["lo"]
    assert "lo,lo" in texts(f"pytrace {path} --interfaces lo,l")
    assert texts(f"pytrace {path} -s SIGTE") == ["SIGTERM"]
    assert str(os.getpid()) in texts(f"pytrace {path} -P ")
    assert texts(f"pytrace {path} -t ") == [":files"]


def test_arguments_of_options_of_pytrace() -> None:
    assert {"json", "folded"} <= set(texts("pytrace -f "))
    assert str(os.getpid()) in texts("pytrace -p ")
    assert f"1,{os.getpid()}" in texts("pytrace -p 1,")
    assert "root" in texts("pytrace --uid ro")
    assert texts("pytrace -o ") == [":files"]
    assert texts("pytrace --cgroup ") == [":folders"]
    assert texts("pytrace -B li") == ["line"]


def test_bash_gets_the_part_that_it_replaces() -> None:
    assert texts("pytrace --uid=roo", "bash") == ["root"]
    assert texts("pytrace -l interval:m", "bash") == ["ms:"]
    assert texts("pytrace -e 'interval:m", "bash") == ["interval:ms:", "interval:ms: "]


def test_bash_does_not_close_a_quote() -> None:
    assert texts("pytrace -e 'begin { strft", "bash") == ["begin { strftime(", "begin { strftime( "]
    assert texts('pytrace -e "begin { strft', "bash") == ["begin { strftime(", "begin { strftime( "]
    assert texts("pytrace -e begin\\ {\\ strft", "bash") == ["begin { strftime("]
    assert texts("pytrace -o '", "bash") == [":files"]


def test_subcommands() -> None:
    assert "--map" in texts("pytrace show --")
    assert texts("pytrace show ") == [":files"]


MISTAKES = ("pytrace --nosuch ", "pytrace -p 1 -e '", "", "pytrace show x --map @", "pytrace -l nosuch:")


@pytest.mark.parametrize("line", MISTAKES)
def test_nothing_is_said_about_mistakes(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    answer("bash", line)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "words", "current", "quote"),
    [
        ("pytrace ", ("pytrace",), "", ""),
        ("pytrace run", ("pytrace",), "run", ""),
        ("pytrace -e 'k:vfs_read { @a", ("pytrace", "-e"), "k:vfs_read { @a", "'"),
        ("pytrace -e 'a b' -", ("pytrace", "-e", "a b"), "-", ""),
        ('pytrace -e "say \\"x', ("pytrace", "-e"), 'say "x', '"'),
        ("pytrace a\\ b", ("pytrace",), "a b", ""),
        ("pytrace ''", ("pytrace",), "", ""),
        ("pytrace '' x", ("pytrace", ""), "x", ""),
        ("pytrace --cmd='a b", ("pytrace",), "--cmd=a b", "'"),
    ],
)
def test_words_are_those_of_a_shell(line: str, words: tuple[str, ...], current: str, quote: str) -> None:
    found = split(line)
    assert (found.words, found.current, found.quote) == (words, current, quote)


def test_bash_replaces_what_follows_a_break_outside_of_quotes() -> None:
    assert split("pytrace -l t:sched:s").after_break() == len("t:sched:")
    assert split("pytrace -e 't:sched:s").after_break() == 0
    assert split("pytrace run").after_break() == 0
    assert split("pytrace --cmd='a b").after_break() == len("--cmd=")


def test_all_options_that_are_shown_are_offered() -> None:
    offered = set(texts("pytrace -"))
    assert {f"--{row.long}" for row in OPTIONS if not row.hidden} <= offered
    assert not {f"--{row.long}" for row in OPTIONS if row.hidden} & offered


def test_values_of_options() -> None:
    assert "--buffering=line" in answer("fish", "pytrace --buffering=l")
    assert {"sample", "detach"} <= set(texts("pytrace --over-budget ", "bash"))
    for row in OPTIONS:
        # An unknown word for what an argument names raises.
        next(completion._arguments(row, ""), None)


def test_commands_are_programs_and_their_arguments_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, mode in (("folder/program", 0o755), ("folder/text", 0o644), ("found", 0o755), (".hidden", 0o644)):
        (tmp_path / name).touch(mode)
    monkeypatch.setenv("PATH", str(tmp_path / "folder"))
    assert texts("pytrace -c ") == ["program", "folder/"]
    assert texts("pytrace -c folder/") == ["folder/program"]
    assert texts("pytrace -c ./f") == ["./folder/", "./found"]
    assert texts("pytrace -c 'program ") == ["program folder/", "program found"]
    assert texts("pytrace -c 'program folder/t") == ["program folder/text"]
    assert texts("pytrace -c 'program .h") == ["program .hidden"]
    assert texts("pytrace --cmd='program fou") == ["--cmd=program found"]
    assert texts("pytrace --cmd='program fou", "bash") == ["program found", "program found "]


def test_names_of_others_have_no_control_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(completion, "_processes", lambda: iter([("12", "a\n13\tb\x1b[2J"), ("1\x1b", "x")]))
    assert answer("zsh", "pytrace -p 1") == "12\ta\\x0a13\\x09b\\x1b[2J\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two\nlines").touch()
    assert "two" not in answer("bash", "pytrace -c 'cat t")


@pytest.mark.parametrize(
    "name", ["fox;reboot", "fox$(id)", "fox`id`", "fox a", "fox'", 'fox"', "fox&", "fox|sh", "fox>x", "fox\n", "fox\\"]
)
def test_names_of_processes_and_symbols_cannot_run_a_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate is put on the line that the user has run next."""
    monkeypatch.setattr(completion, "_processes", lambda: [("5", name), ("6", "foxes")])
    assert texts("pytrace --comm fo", "bash") == ["foxes"]
    assert texts("pytrace -p 5", "bash") == ["5"]
    monkeypatch.setattr(completion, "program_candidates", lambda current, _: [current + name, current + "es"])
    for quote, harmful in (("", ";$`'\"&|> \n\\"), ('"', '$`"\n\\'), ("'", "'\n")):
        expected = {"xes"} if set(name) & set(harmful) else {f"x{name}", "xes"}
        assert {text.rstrip() for text in texts(f"pytrace -e {quote}x", "bash")} == expected


# ---------------------------------------------------------------------------------------------- shells
# The completions that shells load, in real shells on a pseudo-terminal.


ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "share" / "completions"

SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        f"PS1='READY> '; bind 'set bell-style none'; source {FOLDER}/pytrace.bash\n",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        f"PS1='READY> '\nfpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -D -u\n",
    ),
}
LINES = [
    ("pytrace loa", "pytrace loads"),
    ("pytrace runq", "runqslower"),
    ("pytrace loads --dur", "--duration"),
    ("pytrace -l rawtracepoint:sched_swi", "rawtracepoint:sched_switch"),
    ("pytrace -e 'rawtracepoint:sched_swi", "rawtracepoint:sched_switch"),
    ("pytrace -e 'begin { strft", "strftime("),
    ("pytrace -e 'rawtracepoint:sched_switch /strft", "/strftime("),
    ("pytrace -c slee", "sleep"),
    ("pytrace -c 'cat /etc/pass", "/etc/passwd"),
]


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a shell whose home is *folder* and whose ``pytrace`` is this one."""
    folder.mkdir()
    launcher = folder / "pytrace"
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m pytrace "$@"\n')
    launcher.chmod(0o755)
    return {
        "PATH": f"{folder}:/usr/bin:/bin:/usr/sbin:/sbin", "TERM": "dumb", "HOME": str(folder), "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", f"{folder}/cache"),
    }  # fmt: skip


@contextmanager
def shell(command: list[str], folder: Path) -> Iterator[int]:
    """An interactive shell; the terminal's other end."""
    environment = surroundings(folder)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def wait_for(terminal: int, text: str, seen: str = "") -> str:
    """Read until *text* was written."""
    end = time.monotonic() + patience(30)
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{text!r} was not written; there was {seen!r}"
        seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


@pytest.mark.parametrize("name", ["bash", pytest.param("zsh", marks=pytest.mark.needs("zsh"))])
def test_a_tab_completes(name: str, tmp_path: Path) -> None:
    command, setup = SHELLS[name]
    with shell(command, tmp_path / "home") as terminal:
        os.write(terminal, setup.encode())
        for number, (typed, completed) in enumerate(LINES):
            # The echo of the command has the word too, so the prompt is made once more.
            os.write(terminal, f"echo SET''TLED{number}\n".encode())
            rest = wait_for(terminal, f"SETTLED{number}").rpartition(f"SETTLED{number}")[2]
            wait_for(terminal, "READY> ", rest)
            os.write(terminal, typed.encode() + b"\t\t")
            wait_for(terminal, completed)
            os.write(terminal, b"\x15")


def test_typing_goes_on_inside_quotes(tmp_path: Path) -> None:
    command, setup = SHELLS["bash"]
    with shell(command, tmp_path / "home") as terminal:
        os.write(terminal, setup.encode() + b"echo SET''TLED\n")
        wait_for(terminal, "SETTLED")
        os.write(terminal, b"pytrace -e 'begin { strft\t")
        wait_for(terminal, "strftime(")
        os.write(terminal, b"NSECS)")
        # The terminal may have moved the line's end anew; nothing stands between.
        assert "'" not in wait_for(terminal, "NSECS)")


@pytest.mark.needs("fish")
def test_fish_gets_candidates(tmp_path: Path) -> None:
    script = [f"source {FOLDER}/pytrace.fish"]
    for typed, _ in LINES:
        quoted = typed.replace("\\", "\\\\").replace('"', '\\"')
        script.append(f'complete -C "{quoted}"; echo NEXT')
    done = subprocess.run(
        ["fish", "--no-config", "-c", "\n".join(script)],
        env=surroundings(tmp_path / "home"), cwd=tmp_path, capture_output=True, text=True, timeout=patience(60),
        check=True,
    )  # fmt: skip
    for (typed, completed), candidates in zip(LINES, done.stdout.split("NEXT\n")[:-1], strict=True):
        assert completed.removeprefix("pytrace ") in candidates, (typed, done)
