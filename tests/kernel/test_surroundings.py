"""Poor surroundings: streams, home, locale, descriptors, signals; commands and processes that do not behave."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytrace.runtime.load import probe_links
from pytrace.runtime.load.probe_links import Opened
from pytrace.runtime.machine import fingerprints, procfs
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.running import Tracer
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).resolve().parents[2]
PYTRACE = f"{shlex.quote(sys.executable)} -m pytrace"
HELLO = 'begin { printf("hello\\n"); @x[1] = count(); exit(); }'
PRINTED = "hello\n\n\n@x[1]: 1\n"
RIGHTS = "+bpf,+perfmon,+dac_override,+dac_read_search"
USER = f"setpriv --reuid=54321 --regid=54321 --clear-groups --inh-caps {RIGHTS} --ambient-caps {RIGHTS} env HOME=/"


def shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which ``$P`` is pytrace and ``$S`` a script that prints something."""
    return subprocess.run(
        ["sh", "-c", command.replace("$P", PYTRACE)], capture_output=True, text=True, timeout=patience(60), check=False,
        cwd=cwd, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "S": HELLO, **environment},
    )  # fmt: skip


FULL = "ERROR: cannot write output: No space left on device"
STREAMS = [
    pytest.param('$P -q -e "$S" <&-', 0, PRINTED, "", id="stdin_closed"),
    pytest.param("$P - <&-", 1, "", "no probes", id="script_from_closed_stdin"),
    pytest.param('$P -e "$S" >&-', 1, "", "ERROR: cannot write output: Bad file descriptor", id="stdout_closed"),
    pytest.param('$P -q -o out -e "$S" >&-; cat out', 0, PRINTED, "", id="stdout_closed_but_not_used"),
    pytest.param('$P -e "$S" 2>&-', 0, PRINTED, "", id="stderr_closed"),
    pytest.param('$P -e "$S" 2>/dev/full', 0, PRINTED, "", id="stderr_full"),
    pytest.param("$P -e 'begin { nosuch(); }' 2>/dev/full", 1, "", "", id="error_on_full_stderr"),
    pytest.param('$P -e "$S" >/dev/full', 1, "", FULL, id="stdout_full"),
    pytest.param('$P -B full -e "$S" >/dev/full', 1, "", FULL, id="stdout_full_in_blocks"),
    pytest.param('$P -o /dev/full -e "$S"', 1, "", FULL, id="file_full"),
    pytest.param("$P --help >/dev/full", 1, "", FULL, id="help_full"),
    pytest.param("$P --version >&-", 1, "", "Bad file descriptor", id="version_closed"),
    pytest.param('$P -e "$S" <&- >&- 2>&-', 1, "", "", id="all_closed"),
    pytest.param('$P -q -e "$S" -c "cat" <&- 2>&-', 0, PRINTED, "", id="command_of_closed_streams"),
    pytest.param("$P -q -e 'i:ms:2 { print(1); }' | head -n 1", 0, "1\n", "", id="reader_goes_away"),
    pytest.param("trap '' PIPE; $P -q -e 'i:ms:2 { print(1); }' | head -n 1", 0, "1\n", "", id="pipe_signal_ignored"),
    pytest.param("$P -l 't:*' | head -n 1 | wc -l", 0, "1\n", "", id="listing_reader_goes_away"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "status", "printed", "said"), STREAMS)
def test_standard_streams(tmp_path: Path, command: str, status: int, printed: str, said: str) -> None:
    done = shell(command, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (status, printed.strip()), done
    assert said in done.stderr
    assert bool(said) or not done.stderr
    assert "BUG" not in done.stderr
    assert "Traceback" not in done.stderr


def test_no_file_gets_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """What is meant for standard error must not end up in a file that was opened instead of it."""
    script = 'begin { warnf("a warning"); printf("text\\n"); exit(); }'
    done = shell('$P -o out -e "$S" 2>&-; cat out', tmp_path, S=script)
    assert done.stdout.strip() == "text"


HOMES = {
    "missing": {"HOME": "/nonexistent", "XDG_CACHE_HOME": ""},
    "file": {"HOME": "/dev/null", "XDG_CACHE_HOME": ""},
    "proc": {"HOME": "/proc", "XDG_CACHE_HOME": ""},
    "cache_is_a_file": {"XDG_CACHE_HOME": "/etc/passwd"},
}


@pytest.mark.parametrize("home", list(HOMES))
def test_no_place_for_the_cache(tmp_path: Path, home: str) -> None:
    for _ in range(2):
        done = shell('$P -q -e "$S"', tmp_path, **HOMES[home])
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, PRINTED.strip(), "")
    assert not os.path.exists("/nonexistent")


def test_no_environment(tmp_path: Path) -> None:
    done = shell(f'env -i PYTHONPATH={ROOT} $P -q -e "$S" -c /bin/true', tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, PRINTED.strip(), "")


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
                                    {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C"}])  # fmt: skip
def test_no_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    text = 'begin { printf("ä€ %s\\n", "ü"); @["ß"] = 1; errorf("é"); exit(); }'
    done = shell('$P -q -e "$S"', tmp_path, S=text, **locale)
    assert done.stdout.strip() == "ä€ ü\n\n\n@[ß]: 1"
    assert "ERROR: é" in done.stderr
    assert text in done.stderr
    done = shell('$P -q -e "$S"', tmp_path, S='begin { nosuch("€"); }', **locale)
    assert 'begin { nosuch("€"); }' in done.stderr


@pytest.mark.parametrize("limit", [64, 24, 12, 8, 6])
def test_few_descriptors(tmp_path: Path, limit: int) -> None:
    # Functions that no other process calls all the time.
    done = shell(f"ulimit -n {limit}; $P -e 'u:libm:a* {{ @[func] = count(); }} i:ms:50 {{ exit(); }}'", tmp_path)
    assert done.returncode == (0 if limit == 64 else done.returncode & 1), done
    assert done.returncode == 0 or "files" in done.stderr
    assert "BUG" not in done.stderr
    assert "verifier" not in done.stderr


@pytest.mark.parametrize("limit", range(7, 13))
def test_few_descriptors_for_maps(tmp_path: Path, limit: int) -> None:
    """libbpf takes what it could not open for something that the kernel lacks, and the verifier then complains."""
    script = 'begin { @a = count(); @b[1] = 1; printf("x"); exit(); }'
    done = shell(f'ulimit -n {limit}; $P -q -e "$S"', tmp_path, S=script)
    assert (done.returncode, done.stdout) == (1, "")
    assert "too many open files" in done.stderr
    assert "ulimit -n" in done.stderr


@pytest.mark.parametrize("mebibytes", [30, 60, 100, 140, 160, 180, 190])
@pytest.mark.parametrize("option", ["", "--no-cache"])
def test_little_memory_is_no_bug(tmp_path: Path, mebibytes: int, option: str) -> None:
    """A process that has less than what Python and LLVM take together, whichever step finds out."""
    script = "begin { @a = count(); @b[1] = 1; exit(); }"
    done = shell(f'ulimit -v {mebibytes << 10}; exec $P {option} -q -e "$S"', tmp_path, S=script)
    assert not re.search("BUG|Traceback", done.stderr), done.stderr
    if mebibytes <= 100 or done.returncode:
        assert (done.returncode, done.stdout) == (1, "")
        assert re.search("^ERROR: out of memory$", done.stderr, re.MULTILINE), done.stderr


def test_more_probes_than_files(tmp_path: Path) -> None:
    """Whichever open() or system call finds out; nothing is said of the probes, with which nothing is wrong."""
    script = "config = { syscall_tracepoints = plain } t:syscalls:sys_enter_* /pid == cpid/ { @ = count(); }"
    for limit in range(25, 60, 5):
        less = "setpriv --inh-caps -sys_resource --bounding-set -sys_resource"
        done = shell(f'ulimit -n {limit}; exec {less} $P -q -e "$S" -c true', tmp_path, S=script)
        assert (done.returncode, done.stdout) == (1, "")
        assert "too many open files" in done.stderr
        assert "ulimit -n" in done.stderr
        assert "missing_probes" not in done.stderr


def test_a_rate_that_the_kernel_does_not_allow(tmp_path: Path) -> None:
    most = int(Path("/proc/sys/kernel/perf_event_max_sample_rate").read_text())
    done = shell('exec $P -q -e "$S"', tmp_path, S=f"profile:hz:{10 * most} {{ exit(); }}")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the kernel samples at most {most} times a second" in done.stderr
    assert "kernel.perf_event_max_sample_rate" in done.stderr
    assert "missing_probes" not in done.stderr


REMOVED = [
    pytest.param('$P -q -e "$S"', 0, "", id="script"),
    pytest.param('$P -q -e "$S" -c true', 0, "", id="command"),
    pytest.param("$P -q -o x -e 'begin { }'", 1, "cannot write output to 'x': No such file", id="output"),
    pytest.param("$P -q script.bt", 1, "cannot read script 'script.bt'", id="file"),
    pytest.param("$P -q -I . --include x.h -e 'begin { }'", 1, "there is no header 'x.h'", id="header"),
    pytest.param("$P -q -e 'import \"x.bt\"; begin { }'", 1, "cannot import 'x.bt': there is no x.bt", id="import"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "status", "said"), REMOVED)
def test_working_directory_that_was_removed(tmp_path: Path, command: str, status: int, said: str) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    done = shell(f"rmdir {folder}; {command}", folder)
    assert done.returncode == status, done
    assert said in done.stderr
    assert "BUG" not in done.stderr


def test_long_command_lines(tmp_path: Path) -> None:
    script = "begin { print(str($1)); print($#); exit(); } //" + "x" * 100_000
    done = shell('$P -q -e "$S" $(for i in $(seq 1000); do echo aaaaaaaaaaaaaaaaaaaa$i; done)', tmp_path, S=script)
    assert done.stdout.split() == ["aaaaaaaaaaaaaaaaaaaa1", "1000"]
    assert done.stderr == ""


def test_a_huge_environment(tmp_path: Path) -> None:
    """Commands get it, too."""
    script = 'begin { printf("%d\\n", strlen(str($1))); system("echo $BIG7 | wc -c"); exit(); }'
    large = {f"BIG{number}": "x" * 100_000 for number in range(15)}
    done = shell('$P -q --unsafe -e "$S" -c "sh -c true" abc', tmp_path, S=script, **large)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["3", "100001"], "")


def test_no_kernel_symbols(tmp_path: Path) -> None:
    script = "begin { print(kstack); print(ksym(0xffffffff81000000)); exit(); }"
    done = shell('unshare -m sh -c "mount --bind /dev/null /proc/kallsyms; $P -q -e \\"$S\\""', tmp_path, S=script)
    assert done.returncode == 0, done
    assert "0xffffffff81000000" in done.stdout
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("setarch") is None, reason="the program setarch is not here")
def test_old_kernels_are_warned_of(tmp_path: Path) -> None:
    done = shell('setarch --uname-2.6 $P -q -e "$S"', tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, PRINTED.strip())
    assert re.fullmatch(r"WARNING: kernel 2\.6\.\S+ is older than 5\.15; some features will be missing\n", done.stderr)
    assert not shell('setarch --uname-2.6 $P -q --no-warnings -e "$S"', tmp_path).stderr


def test_no_proc(tmp_path: Path) -> None:
    done = shell("unshare -m sh -c \"umount -l /proc; $P -e 'begin { }'\"", tmp_path)
    assert done.returncode == 1
    assert "/proc is not mounted" in done.stderr


# ---------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [(), ("-c", "sleep 60")])
def test_signals_end_a_run_in_order(tmp_path: Path, number: signal.Signals, command: tuple[str, ...]) -> None:
    script = 'interval:s:60 { } begin { @x = 1; } end { printf("over\\n"); }'
    tracer = started("-B", "full", "-o", str(tmp_path / "out"), "-e", script, *command)
    tracer.send_signal(number)
    tracer.communicate(timeout=patience(30))
    assert tracer.returncode == 0
    assert (tmp_path / "out").read_text().split() == ["over", "@x:", "1"]


def test_nohup_is_heeded(tmp_path: Path) -> None:
    tracer = started("-o", str(tmp_path / "out"), "-e", "interval:s:60 { } end { }", "-c", "sleep 60", nohup=True)
    child = procfs.children(tracer.pid)[0]
    tracer.send_signal(signal.SIGHUP)
    os.kill(child, signal.SIGHUP)
    time.sleep(0.3)
    assert tracer.poll() is None
    tracer.send_signal(signal.SIGINT)
    tracer.communicate(timeout=patience(30))
    assert tracer.returncode == 0


def test_a_killed_tracer_takes_its_command_along(tmp_path: Path) -> None:
    tracer = started("-o", str(tmp_path / "out"), "-e", "interval:s:60 { }", "-c", "sleep 60")
    child = procfs.children(tracer.pid)[0]
    tracer.kill()
    tracer.communicate(timeout=patience(30))
    until(lambda: not os.path.exists(f"/proc/{child}"))


def started(*arguments: str, nohup: bool = False) -> subprocess.Popen[bytes]:
    """A tracer that has attached everything."""
    command = [*(["nohup"] if nohup else []), sys.executable, "-m", "pytrace", *arguments]
    tracer = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd=ROOT,
        env={**os.environ, "__PYTRACE_NOTIFY_PROBES_ATTACHED": "1"},
    )  # fmt: skip
    assert tracer.stdout is not None
    assert tracer.stdout.readline() == b"__PYTRACE_NOTIFY_PROBES_ATTACHED\n"
    return tracer


# -------------------------------------------------------------------------------------------- what killed tracers leave


@pytest.fixture
def definitions() -> Path:
    """The file of user probes in tracefs."""
    need("uprobe")
    return Path(fingerprints.tracefs_root()) / "uprobe_events"


@pytest.fixture
def place(definitions: Path, programs: Path) -> Iterator[str]:
    """Where probes can be defined: in a file that only this test's probes are in, so that these can be removed."""
    yield f"{programs}/calls:0x1000"
    for line in definitions.read_text().splitlines():
        name, path = line.split()[:2]
        if path.startswith(f"{programs}/calls:"):
            # Ended tracers' definitions are swept up by whoever defines one.
            with contextlib.suppress(FileNotFoundError):
                probe_links._write(str(definitions), f"-:{name.partition(':')[2]}\n")


def test_definitions_of_killed_tracers_are_removed(definitions: Path, place: str, programs: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for process in (ended.pid, os.getppid()):
        probe_links._write(str(definitions), f"p:pytrace_{process}/p{process}_0 {place}\n")
    probe_links._write(str(definitions), f"p:pytrace_other/p{ended.pid}_0 {place}\n")
    opened = Opened()
    probe_links.sweep.cache_clear()
    event = probe_links.open_uprobe(str(programs / "calls"), 0x1000, 0, returns=False, pid=None, opened=opened)
    os.close(event)
    left = definitions.read_text()
    assert f"pytrace_{ended.pid}/" not in left
    assert f"pytrace_{os.getppid()}/" in left
    assert f"pytrace_other/p{ended.pid}_0" in left
    opened.close()
    assert f"pytrace_{os.getpid()}/" not in definitions.read_text()


@pytest.mark.parametrize(
    "script",
    [
        HELLO,
        "tracepoint:sched:sched_switch { @[kstack] = count(); exit(); }",
        "uprobe:libc:malloc { exit(); }",
        "interval:ms:10 { print((ksym(0), jiffies, ncpus)); exit(); }",
        "kprobe:vfs_raed { }",
    ],
)
def test_proc_without_files_of_the_kernel(tmp_path: Path, script: str) -> None:
    """``mount -o subset=pid``, which sandboxes use: no /proc/kallsyms, meminfo, modules, sys."""
    done = shell(
        "unshare -m sh -c 'mount -t proc -o subset=pid proc /proc && exec \"$@\"' sh $P -q -c true -e \"$S\"", tmp_path,
        S=script,
    )  # fmt: skip
    assert "BUG" not in done.stderr
    assert "Traceback" not in done.stderr
    if "raed" not in script:
        assert (done.returncode, "ERROR" in done.stderr) == (0, False), done.stderr


# ---------------------------------------------------------------------------------------------- traced processes
# Commands and processes that do not behave: they ignore signals, change their rights or program, or end too early.


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_a_command_that_ignores_signals(tmp_path: Path) -> None:
    """It gets SIGTERM, and two seconds later SIGKILL."""
    stubborn = "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; "
    stubborn += "print(os.getpid(), flush=True); time.sleep(999)"
    script = "interval:ms:900 { @ = 1; exit(); }"
    done = shell(f'$P -q -e "$S" -c "{sys.executable} -c \'{stubborn}\'"', tmp_path, S=script)
    pid, *printed = done.stdout.split()
    assert (done.returncode, printed, done.stderr) == (0, ["@:", "1"], "")
    assert not alive(int(pid))


def test_a_command_that_forks_twice(tmp_path: Path) -> None:
    """The run ends with the command itself; what it left running is not ours to end, and is no longer traced."""
    need("syscalls")
    script = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { @ = count(); }"
    mark = tmp_path / "mark"
    command = f"sh -c 'setsid sh -c \"sleep 1; echo > {mark}\" & exit 0'"
    done = shell('$P -q -e "$S" -c "$C"', tmp_path, S=script, C=command)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["@:", "1"], "")
    until(mark.exists)


def test_a_command_that_executes_other_programs(tmp_path: Path) -> None:
    need("syscalls")
    script = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { @[comm] = count(); }"
    done = shell('$P -q -e "$S" -c "$C"', tmp_path, S=script, C="sh -c 'exec env sh -c \"exec env true\"'")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["@[true]:", "1"], "")


@pytest.fixture
def privileged() -> Iterator[Path]:
    """A program that runs as root, whoever starts it, in a folder that all may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Path(folder) / "privileged"
        shutil.copy("/bin/sleep", made)
        made.chmod(0o4755)
        yield made


def test_a_command_with_the_rights_of_another_user(tmp_path: Path, privileged: Path) -> None:
    """It may be ended by whom it was started: the real user is the same."""
    script = "interval:ms:300 { @ = 1; exit(); }"
    done = shell(f'{USER} $P -q -e "$S" -c "{privileged} 86403"', tmp_path, S=script)
    assert (done.returncode, done.stdout.split()) == (0, ["@:", "1"]), done
    found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"86403" in read(path)]
    assert not found


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# ------------------------------------------------------------------------------------------------ processes of -p

EVERYTHING = (
    "uprobe:PROGRAM:add { @u = count(); } software:faults:1 { @f = count(); } "
    "profile:hz:99 { @p[ustack] = count(); } tracepoint:syscalls:sys_enter_getppid { @t = count(); }"
)


@pytest.mark.parametrize("lifetime", [0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])
def test_a_process_that_ends_before_it_is_traced(programs: Path, tmp_path: Path, lifetime: float) -> None:
    """Whichever step finds out, it is an error of one line, or a run that ends at once."""
    need("uprobe", "perf_events", "syscalls")
    script = EVERYTHING.replace("PROGRAM", str(programs / "calls"))
    if lifetime == 0.0:
        ended = subprocess.Popen(["true"])
        ended.wait()
        done = shell(f'$P -q -e "$S" -p {ended.pid}', tmp_path, S=script)
    else:
        done = shell(f'sleep {lifetime} & $P -q -e "$S" -p $!', tmp_path, S=script)
    assert done.returncode in (0, 1)
    if done.returncode:
        assert "no process" in done.stderr.lower() or "No such process" in done.stderr
    assert "BUG" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_number_that_is_given_to_another_process() -> None:
    """The run ends with the process that had the number: a pidfd stands for it."""
    need("perf_events")
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not last.exists():
        pytest.skip("this kernel has no ns_last_pid")
    first = subprocess.Popen(["sleep", "999"])
    with Tracer("-q", "-e", "software:faults:1 { @ = count(); }", "-p", str(first.pid)) as tracer:
        first.kill()
        first.wait()
        others = []
        while len(others) < 50 and (not others or others[-1].pid != first.pid):
            last.write_text(str(first.pid - 1))
            others.append(subprocess.Popen(["sleep", "999"]))
        assert tracer.process.wait(patience(30)) == 0
        for other in others:
            other.kill()
            other.wait()


# ------------------------------------------------------------------------------------------------ the terminal


@pytest.mark.parametrize("options", [(), ("-c", "sleep 86404")])
def test_a_terminal_that_disappears(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A hang-up ends the run in order: what was traced is saved though nobody reads the output."""
    mine, other = pty.openpty()
    script = 'begin { @ = count(); } interval:ms:20 { printf("x\\n"); }'
    tracer = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "pytrace", "-e", script, "--save", "saved", *options],
        stdin=other, stdout=other, stderr=other, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(other)
    seen = b""
    while b"x\r\n" not in seen:
        seen += os.read(mine, 4096)
    os.close(mine)
    assert tracer.wait(patience(30)) == 0
    assert (tmp_path / "saved").stat().st_size > 100


@pytest.mark.parametrize("terminal", ["dumb", "", None])
def test_terminals_that_know_little(tmp_path: Path, terminal: str | None) -> None:
    mine, other = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "TERM"}
    environment |= {} if terminal is None else {"TERM": terminal}
    with subprocess.Popen(
        [sys.executable, "-m", "pytrace", "-q", "-e", 'begin { print("ä"); @x[1] = 2; exit(); }'],
        stdin=other, stdout=other, stderr=other, env={**environment, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
    ) as tracer:  # fmt: skip
        os.close(other)
        assert tracer.wait(patience(30)) == 0
    seen = b""
    with suppress(OSError):  # EIO: nobody has the other end
        while piece := os.read(mine, 4096):
            seen += piece
    os.close(mine)
    assert seen.decode().split() == ["ä", "@x[1]:", "2"]
