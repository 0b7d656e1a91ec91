"""``--live`` on a real terminal (tmux): what it shows, and that the terminal is given back however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from pytrace.results import file_form
from tests.support.compile import SOURCES, compiled
from tests.support.tmux import Terminal, terminal
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("tmux"), pytest.mark.usefixtures("no_leaks")]

CALLS = "tracepoint:syscalls:sys_enter_getpgid { @calls[comm] = count(); @total = count(); @h = hist(args.pid); }"
"""Nothing else on the machine makes this call in a hurry; the shell of the terminal makes none while it waits."""
SCRIPT = f"{CALLS} interval:ms:100 {{ printf(\"tick %d\\n\", 1); }}"
COUNTED = "import os, time\nfor _ in range(250): os.getpgid(0)\ntime.sleep(1000)\n"


def begun(view: Terminal, *words: str | Path, script: str = SCRIPT, also: str = "") -> None:
    view.run("--live", "-e", script, *words, also=also)
    view.shows("hits/s", "? help")


def children(view: Terminal) -> list[int]:
    """The run and its view, in this order."""
    (shell,) = view._tmux("display-message", "-p", "#{pane_pid}").split()
    run = _children(int(shell))[-1]
    return [run, *_children(run)]


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_it_shows_what_the_text_output_prints(width: int, height: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(COUNTED)
    with terminal(tmp_path, width, height) as view:
        before, modes = view.settings(), view.modes()
        begun(view, "-c", f"python3 {program}")
        view.shows("@calls, ", "tick 1")
        view.press("s")  # by total, as rows that are idle go
        view.shows("@calls, 1 row, by total", "250 python3", "@total 250 ")
        view.press("C-c")
        assert view.status() == 0
        text = view.screen()
        assert "@calls[python3]: 250" in text
        assert "@total: 250" in text
        assert view.settings() == before
        assert view.modes() == modes


SIGNALS = {"kill": signal.SIGINT, "term": signal.SIGTERM, "hup": signal.SIGHUP, "run killed": signal.SIGKILL}


def test_the_terminal_is_given_back_however_it_ends(tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        before, modes = view.settings(), view.modes()
        for ending in ("q", *SIGNALS, "view killed", "view terminated"):
            view.type("clear")
            begun(view, script=f"{CALLS} begin {{ @x = 7; }}")
            run, process = children(view)
            if ending == "q":
                view.press("q")
            elif ending.startswith("view"):
                os.kill(process, signal.SIGKILL if ending == "view killed" else signal.SIGTERM)
            else:
                os.kill(run, SIGNALS[ending])
            status = view.status()
            until(lambda: view.modes() == modes)
            if ending == "run killed":
                assert status == 128 + signal.SIGKILL
                until(lambda: not Path(f"/proc/{process}").exists())  # noqa: B023
            else:
                assert "@x: 7" in view.screen(), ending
                assert status == (1 if ending.startswith("view") else 0), ending
            if ending.startswith("view"):
                number = 9 if ending == "view killed" else 15
                assert f"ERROR: the live view failed (signal {number}), so the run was ended" in view.screen()
            assert view.settings() == before, ending


def test_it_stops_and_goes_on(tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        before, modes = view.settings(), view.modes()
        begun(view, script="interval:ms:100 { @n = count(); }")
        run, process = children(view)
        view.press("C-z")
        view.shows("Stopped")
        until(lambda: all("\nState:\tT" in Path(f"/proc/{pid}/status").read_text() for pid in (run, process)))
        assert view.settings() == before
        assert view.modes() == modes
        view.type("clear; fg")
        view.shows("@n ", "? help")
        view.press("C-c")
        view.shows("@n: ")
        assert view.modes() == modes


def test_snapshots_are_written_though_privileges_are_gone(tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        begun(view, "-v", script="begin { @x = 7; } interval:s:1 { @n = count(); }")
        view.press("w")
        view.shows("written: pytrace-")
        (path,) = tmp_path.glob("pytrace-*.pts")
        assert file_form.read(str(path)).maps["@x"].entries == {None: 7}
        run, process = children(view)
        for pid in (run, process):
            status = Path(f"/proc/{pid}/status").read_text()
            assert "CapEff:\t0000000000000000" in status
            assert "Seccomp:\t2" in status
        view.press("C-c")
        assert view.status() == 0


def test_a_reset_empties_the_map_and_the_end_prints_what_came_after(tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        begun(view, script="begin { @a[1] = 5; @b[2] = count(); } interval:s:100 { }")
        view.press("C")
        view.shows("@b was reset", "@b, nothing yet")
        view.press("q")
        assert view.status() == 0
        assert "@a[1]: 5" in view.screen()
        assert "@b" not in view.screen().partition("Attached")[2]


PRINTS = "begin { printf(\"first\\n\"); } interval:s:1 { if (@n == 4) { exit(); } @n++; printf(\"line %d\\n\", @n); }"


def test_exit_and_duration_end_it_as_any_run(tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        view.run("--live", "-e", PRINTS)
        view.shows("first", "line 2", "? help")
        assert view.status() == 0
        assert "@n: 4" in view.screen()
        view.run("--live", "--duration", "1", "-e", "begin { @x = 8 } interval:s:50 { }")
        assert view.status() == 0
        assert "@x: 8" in view.screen()
        view.run("--live", "-e", 'begin { printf("hello %d\\n", 3); exit(); }')
        assert view.status() == 0
        assert "hello 3" in view.screen()


SAMPLED = """tracepoint:task:task_rename /pid == cpid/ {
  for ($i : 0..40000) { @work = sum($i); }
  @n = count(); @k[comm] = sum(3); @h = hist(7); @last = 5;
} interval:s:100 { @timer = count(); }"""
"""A body that is more expensive than the budget, while the way to it is not (``test_budget``)."""


def test_estimates_are_marked(programs: Path, tmp_path: Path) -> None:
    with terminal(tmp_path, 110, 40) as view:
        words = ("--budget", "6%", "-c", f"{programs}/paced 2000 10000000")
        begun(view, *words, script=" ".join(SAMPLED.split()))
        view.shows("WARNING: tracing takes ", "estimate @n ", " estimate @k, ", " estimate @h ", "sample @last ")
        view.press("C-c")
        assert view.status() == 0
        assert "estimate @n: " in view.screen()
        assert "sample @last: 5" in view.screen()


OWN = """config = { print_maps_on_exit = 0 } begin { @start[1] = 2; @x = 3; } interval:ms:50 {
  @outputs++; @n = count(); printf("line %d\\n", @outputs); if (@outputs == 10000) { exit(); }
}"""


def test_what_is_printed_nowhere_is_shown_if_asked_for(tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        begun(view, script=" ".join(OWN.split()))
        view.shows("@n ", "line 2")
        assert "@outputs " not in view.screen()
        assert "@start, 1 row" not in view.screen()
        view.press("0")
        view.shows("@outputs ", "@x ", "@start, 1 row")
        view.press("C-c")
        assert view.status() == 0


def test_commands_print_to_the_log(tmp_path: Path) -> None:
    # The first line of the view is the script: what is waited for is not in it.
    script = 'interval:ms:100 { system("echo of $((1 + 1)) systems >&2"); warnf("careful"); }'
    with terminal(tmp_path, 100, 30) as view:
        begun(view, "--unsafe", "-c", "sh -c 'while echo of the child; do sleep 1; done'", script=script)
        view.shows("of the child", "of 2 systems", "WARNING: careful")
        view.press("C-c")
        assert view.status() == 0
        assert "WARNING: careful" in view.screen(), "messages are printed after the view"


def test_output_may_go_to_a_file(tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        program = 'begin { @x[1] = 2; } interval:s:1 { @n++; printf("line %d\\n", @n); }'
        view.run("--live", "-f", "json", "-o", "out.json", "-e", program)
        view.shows("@x, 1 row")
        until(lambda: "line 2" in (tmp_path / "out.json").read_text())
        view.press("C-c")
        assert view.status() == 0
    lines = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    assert {"type": "printf", "data": "line 2\n"} in lines
    assert {"type": "map", "data": {"@x": {"1": 2}}} in lines


REFUSED = (
    ("--live -e 'begin { }' 2>&1 > out", "ERROR: a live view needs a terminal, and standard output is not one"),
    ("--live -e 'begin { }' < /dev/null", "ERROR: a live view needs a terminal, and standard input is not one"),
    ("--live -f json -e 'begin { }'", "ERROR: --live has the terminal, to which -f json would print"),
    ("--live --dry-run -e 'begin { }'", "ERROR: --live is for a run of the script, not for --dry-run"),
    ("--live --test -e 'test:x { }'", "ERROR: --live is for a run of the script, not for test mode"),
)


def test_where_it_cannot_be_shown_it_says_so(tmp_path: Path) -> None:
    with terminal(tmp_path, 100, 30) as view:
        for words, message in REFUSED:
            view.run(also=f" {words}")
            assert view.status() == 1
            assert message in view.screen()


@pytest.mark.parametrize(("variables", "plain"), [({"TERM": "vt100"}, False), ({"LC_ALL": "C", "NO_COLOR": "1"}, True)])
def test_it_degrades(variables: dict[str, str], plain: bool, tmp_path: Path) -> None:
    with terminal(tmp_path) as view:
        for name, value in variables.items():
            view.type(f"export {name}={value}")
        begun(view, script='begin { @["é"] = 3; @["a"] = 1; @h = hist(5); } interval:ms:100 { @h = hist(5); }')
        view.press("h")
        view.shows("@, 2 rows")
        shown = view.screen(styles=True)
        assert not re.search(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])\b", shown), "a colour"
        if plain:
            assert view.screen().isascii()
        view.press("C-c")
        assert view.status() == 0


def test_the_heartbeat_goes_on(tmp_path: Path) -> None:
    """Programs do nothing when pytrace has not run for as long as the watchdog says."""
    with terminal(tmp_path) as view:
        begun(view, "--watchdog", "1", script="interval:ms:100 { @n = count(); }")
        until(lambda: any(line.startswith("@n 3") for line in view.screen().splitlines()), 30)
        assert "lost 0" in view.screen()
        view.press("C-c")
        assert view.status() == 0
        assert "skipped" not in view.history()


WORK = """import os, socket, time
for _ in range(321): os.close(os.open("/etc/hostname", os.O_RDONLY))
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
for _ in range(10): client.sendall(bytes(1000)); other.recv(1000, socket.MSG_WAITALL)
while time.process_time() < 0.8: pass
time.sleep(1000)
"""


def test_top_has_the_numbers_of_a_known_workload(tmp_path: Path) -> None:
    (tmp_path / "topped").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "work.py").write_text(WORK)
    with terminal(tmp_path, 160, 50) as view:
        view.run("top", "--comm", "topped", "-c", f"{tmp_path}/topped -I -S {tmp_path}/work.py")
        view.shows("pytrace What is busy now?  ", "Which processes use the CPUs?", "Who makes which system calls?")
        for _ in range(5):
            view.press("s", "Tab")  # by total, as the workload is over soon
        rows = [r"321 +\d+ topped +/etc/hostname", r" 10 +\d+ topped +sendto", r"(\d\d\d ms|1(\.\d+)? s) +\d+ topped "]
        if Path("/sys/kernel/tracing/events/sock/sock_send_length").exists():
            rows += [r"10 kB +\d+ topped +sent", r"10 kB +\d+ topped +received"]
        until(lambda: all(re.search(row, view.screen()) for row in rows), 30)
        view.press("z")
        view.shows("Which processes use the CPUs?", "sleeping", " memory ", f"{tmp_path}"[:8])
        until(lambda: "Who opens" not in view.screen())
        view.press("q")
        assert view.status() == 0
        text = view.screen()
        assert 4 <= text.count("?\n") <= 5, "a summary of each map that has entries, in place of thousands of lines"
        assert re.search(r"  321  \d+ +topped +/etc/hostname\n", text)


DEEPER = """import os, threading
def waits(): threading.Event().wait()
threading.Thread(target=waits).start()
def works():
    while True: os.getpgid(0)
works()
"""


def test_the_wheel_scrolls_the_log_and_the_help(tmp_path: Path) -> None:
    script = 'begin { $i = 0; while ($i < 60) { printf("line %d.\\n", $i); $i++; } } interval:s:1 { }'
    with terminal(tmp_path, 60, 16) as view:
        begun(view, script=script)
        view.shows("line 59.")
        for _ in range(9):
            view.turn_wheel(-1)
        view.shows("line 30.")
        assert "line 59." not in view.screen()
        for _ in range(9):
            view.turn_wheel(1)
        view.shows("line 59.")
        view.press("?")
        view.shows("Keys of the live view")
        first = view.screen()
        view.turn_wheel(1)
        until(lambda: view.screen() != first and "Keys of the live view" not in view.screen(), 30)
        view.press("x", "q")
        assert view.status() == 0, view.screen()


def test_enter_goes_deeper_though_privileges_are_gone(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(DEEPER)
    script = "tracepoint:syscalls:sys_enter_getpgid { @calls[pid, comm] = count(); }"
    with terminal(tmp_path, 100, 40) as view:
        begun(view, "-c", f"python3 {tmp_path}/work.py", script=script)
        view.shows(", by rate")  # there is a row
        view.press("Enter")
        view.shows("What do its threads do?", "2 threads", "running")
        view.press("4")
        view.shows("Which system calls does it make", "calls in 5 s", "getpgid")
        view.press("5")
        view.shows("Where does it spend its time?", " samples")
        view.press("s", "s")
        view.shows("total*", "100.0 % works")
        view.press("Escape")
        view.shows("@calls, ")
        view.press("q")
        assert view.status() == 0


def test_maps_keep_no_calls_of_the_tracer_and_of_the_view(tmp_path: Path) -> None:
    """Both wait in calls all the time, also in their other threads: at the end none of them is in a map of calls."""
    saved = tmp_path / "saved"
    # Other tests may run a pytrace beside this one.
    own = "begin { @own = (uint64)curtask.tgid; } macro is_own(@own) { "
    own += "(uint64)curtask.tgid == @own || (uint64)curtask.real_parent.tgid == @own } "
    calls = own + "t:raw_syscalls:sys_enter /is_own(@own)/ { @[pid, tid] = 1; } "
    ends = "t:raw_syscalls:sys_exit /is_own(@own)/ { delete(@, (pid, tid)); } interval:s:1 { exit(); }"
    with terminal(tmp_path) as view:
        view.run("--live", "--yes", "-e", calls + ends, "--save", saved)
        assert view.status() == 0
    maps = file_form.read(str(saved)).maps
    assert maps["@own"].entries[None]
    assert not maps["@"].entries


WAITING = ("-O1", "-fno-optimize-sibling-calls", "-pthread")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_calls_under_way_are_shown_the_oldest_first(width: int, height: int, tmp_path: Path) -> None:
    """Those that wait, but none that was left by longjmp, or by the end of its thread."""
    program = compiled(tmp_path, "waiting", SOURCES / "waiting_calls.c", *WAITING)
    functions = ",".join(f"call:./waiting:{name}" for name in ("wait_inside", "leave", "end_inside", "hurry"))
    # Calls that the script reads nothing of are seen, too.
    script = f"{functions} {{ @[func] = count(); }} syscall:pause,clock_nanosleep /pid == cpid/ {{ @us = count(); }}"
    with terminal(tmp_path, width, height) as view:
        begun(view, "-c", str(program), script=script)
        view.shows("@, 1 row", "calls under way, ")
        until(lambda: len(_waiting(view.screen())) >= 9)
        rows = _waiting(view.screen())
        inside: dict[str, list[str]] = {}
        for _, thread, call, depth in rows:
            if call == "./waiting:wait_inside":
                inside.setdefault(thread, []).append(depth)
        assert [*inside.values()] == [["0", "1", "2"], ["0", "1", "2"]], rows
        assert sorted(row[3] for row in rows if row[2] == "syscall:pause") == ["0", "3", "3"], rows
        seconds = [float(row[0]) for row in rows[:9]]
        assert seconds == sorted(seconds, reverse=True)
        assert not re.search(r"(leave|end_inside) ", view.screen())
        view.press("q")
        assert view.status() == 0


def _waiting(screen: str) -> list[tuple[str, ...]]:
    """Age in seconds, thread, call and depth of the calls that have been waiting for seconds."""
    return re.findall(r"^\s*([\d.]+) s +[^\s\w]* *(\d+) waiting +(\S+) +(\d+)$", screen, re.MULTILINE)


FUNCTIONS = (*(f"./waiting:{name}" for name in ("wait_inside", "leave", "end_inside", "hurry")), "syscall:pause")


@pytest.mark.parametrize("words", [("syscall:pause,clock_nanosleep",), FUNCTIONS])
def test_calls_has_a_view_of_those_under_way(words: tuple[str, ...], tmp_path: Path) -> None:
    compiled(tmp_path, "waiting", SOURCES / "waiting_calls.c", *WAITING)
    functions = len(words) > 1
    with terminal(tmp_path, 100, 40) as view:
        before, modes = view.settings(), view.modes()
        view.run("calls", "--live", "-c", "./waiting", *words)
        view.shows("calls of ./waiting", "? help", "calls returned", "calls under way, ", "log")
        until(lambda: len(_waiting_with_arguments(view.screen())) >= (9 if functions else 3))
        rows = _waiting_with_arguments(view.screen())
        pauses = sorted(depth for call, depth in rows if call == "pause()")
        assert pauses == (["0", "3", "3"] if functions else ["0", "0", "0"])
        inside = sorted(depth for call, depth in rows if call.startswith("wait_inside("))
        assert inside == (["0", "0", "1", "1", "2", "2"] if functions else [])
        assert not [call for call, _ in rows if call.startswith(("leave(", "end_inside("))], rows
        view.shows("hurry(" if functions else "{tv_sec=0, tv_nsec=1000000}, NULL) = 0")
        view.press("q")
        assert view.status() == 0
        view.shows("pause( <unfinished, for ")
        assert (view.settings(), view.modes()) == (before, modes)


def _waiting_with_arguments(screen: str) -> list[tuple[str, str]]:
    """Call and depth of those that have been waiting for seconds."""
    return re.findall(r"^\s*[\d.]+ s +[^\s\w]* *\d+ waiting +(\S.*?) +(\d+)$", screen, re.MULTILINE)


def test_a_view_of_calls_is_refused_where_it_shows_nothing(tmp_path: Path) -> None:
    rows = {
        "--summary": "--summary is a table at the end: --live shows calls as they are made",
        "-f json": "--live has the terminal, to which -f json would print",
    }
    with terminal(tmp_path, 100, 24) as view:
        for option, text in rows.items():
            view.run("calls", "--live", "-c", "true", *option.split())
            assert view.status() == 1
            view.shows(f"ERROR: {text}")
