"""The traced command: its start, confinement and signals."""

from __future__ import annotations

import errno
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import EventSpec, Location, NoStaticPart
from pytrace.core.manifest import Manifest, PythonMaps
from pytrace.core.options import Config, RunOptions
from pytrace.core.types import UINT64, InterfaceName, KSym, Stack, Type, Username, USym
from pytrace.runtime.machine import bpf, privileges
from pytrace.runtime.machine.confine import Family
from pytrace.runtime.machine.privileges import CAPABILITIES
from pytrace.runtime.session import child, confinement
from pytrace.runtime.session.confinement import Needs, needs
from tests.support.rows import each_row
from tests.support.waiting import open_descriptors, until

# ---------------------------------------------------------------------------------------------- child
# .


def wait(process: child.Child) -> int | None:
    select.select(process.descriptors, [], [], 10)
    return process.poll()


def test_held_until_released(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with ExitStack() as stack:
        process = child.start(f"sh -c 'echo \"a b\" > {made}; exit 3'", stack)
        assert process.poll() is None
        assert not made.exists()
        process.release()
        assert wait(process) == 3
    assert made.read_text() == "a b\n"


def test_ctrl_c_while_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    end = os.kill

    def kill(pid: int, number: int) -> None:
        signal.raise_signal(signal.SIGINT)
        end(pid, number)

    stack = ExitStack()
    process = child.start("sleep 99", stack)
    process.release()
    monkeypatch.setattr(child.os, "kill", kill)
    with pytest.raises(KeyboardInterrupt):
        stack.close()
    assert process.poll() == -signal.SIGTERM


def test_stands_still_as_the_new_program() -> None:
    with ExitStack() as stack:
        process = child.start("sleep 0", stack)
        process.stop_after_exec()
        assert os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) != os.path.basename(sys.executable)
        process.release()
        assert wait(process) == 0


def test_a_namespace_that_cannot_be_entered_is_told_apart_from_a_program_that_cannot_be_run() -> None:
    with ExitStack() as stack, open("/proc/self/ns/mnt", "rb") as other:
        process = child.start("sleep 0", stack, other.fileno())
        with pytest.raises(TraceError, match="cannot run sleep in the network namespace of --netns: Invalid argument"):
            process.release()
        assert wait(process) == 127


@pytest.mark.parametrize("how", ["held", "stopped", "running", "stubborn"])
def test_ends_with_the_tracer(how: str) -> None:
    command = "sh -c 'trap \"\" TERM; while :; do sleep 9; done'" if how == "stubborn" else "sleep 99"
    with ExitStack() as stack:
        process = child.start(command, stack)
        if how == "stopped":
            process.stop_after_exec()
        elif how != "held":
            process.release()
    assert process.poll() is not None
    assert not os.path.exists(f"/proc/{process.pid}")


def test_ends_when_the_tracer_is_killed() -> None:
    code = (
        "from contextlib import ExitStack\nfrom pytrace.runtime.session import child\nimport time\n"
        "p = child.start('sleep 99', ExitStack())\np.release()\nprint(p.pid, flush=True)\ntime.sleep(99)\n"
    )
    tracer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert tracer.stdout is not None
    pid = int(tracer.stdout.readline())
    watch = os.pidfd_open(pid)
    tracer.kill()
    tracer.communicate()
    assert select.select([watch], [], [], 10)[0]
    os.close(watch)


def test_signal_status() -> None:
    with ExitStack() as stack:
        process = child.start("sh -c 'kill -9 $$'", stack)
        process.release()
        assert wait(process) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("command", "message"),
    [("", "empty"), ("'x", "quoting"), ("no-such-program-x", "no such program"), ("/tmp", "directory"),
     ("/etc/passwd", "not executable"), ("/nonexistent/x", "no such file")],
)  # fmt: skip
def test_bad_commands(command: str, message: str) -> None:
    with ExitStack() as stack, pytest.raises(TraceError, match=message):
        child.start(command, stack)


def test_not_a_program(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("hello")
    file.chmod(0o755)
    with ExitStack() as stack:
        process = child.start(str(file), stack)
        with pytest.raises(TraceError, match="Exec format error"):
            process.release()


def test_privileges() -> None:
    with pytest.raises(TraceError, match=r"CAP_BPF|needs root"):
        privileges.check_capabilities(frozenset({"CAP_DAC_READ_SEARCH"}))
    privileges.check_capabilities(frozenset({"CAP_DAC_READ_SEARCH", "CAP_BPF", "CAP_PERFMON"}))
    with pytest.raises(TraceError, match="locked down"):
        privileges.check_lockdown("none integrity [confidentiality]")
    privileges.check_lockdown("none [integrity] confidentiality")
    assert privileges.kernel_warnings("5.10.0-8-amd64")
    assert not privileges.kernel_warnings("6.1.0")


def test_runs_until_its_libraries_are_there(programs: Path) -> None:
    with ExitStack() as stack:
        process = child.start(f"{programs}/frameless", stack)
        process.stop_after_exec()
        maps = Path(f"/proc/{process.pid}/maps")
        assert "libframeless.so" not in maps.read_text()
        assert process.run_to_entry()
        assert "libframeless.so" in maps.read_text()
        assert process.poll() is None
        process.release()
        assert wait(process) == 0


def test_runs_from_one_program_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of execs, in which other processes are forked; a signal that comes meanwhile reaches the program."""
    with ExitStack() as stack:
        trap = "trap \"exec env sleep 0\" USR1; kill -USR1 $$; sleep 9"
        process = child.start(f"env sh -c '{trap}'", stack)
        process.stop_after_exec()
        programs = []
        for _ in range(3):
            assert process.run_to_entry()
            assert process.run_to_next_program()
            programs.append(os.path.basename(os.readlink(f"/proc/{process.pid}/exe")))
        assert [programs[0] in ("dash", "bash", "busybox"), *programs[1:]] == [True, "env", "sleep"]
        assert process.run_to_entry()
        assert not process.run_to_next_program()
        assert wait(process) == 0
        process.stop_after_exec()
        process.release()
    with ExitStack() as stack:
        process = child.start("sleep 99", stack)
        process.stop_after_exec()
        monkeypatch.setattr(child, "EXEC_PATIENCE", 0.1)
        assert not process.run_to_next_program()
        assert process.poll() is None
        process.release()


def _runs(name: str) -> Callable[[int], bool]:
    return lambda pid: os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name


@pytest.mark.parametrize(
    "script",
    [
        "{wanted} 0 & wait",
        "(sh -c '{wanted} 0; true')",
        "sleep 0.01; true | {wanted} 0",
        "kill -USR1 $$; {wanted} 0; test $got = 1",
        "{python} -c 'import subprocess; subprocess.run([\"{wanted}\", \"0\"])'",
        """{python} -c 'import os, threading
thread = threading.Thread(target=os.system, args=("{wanted} 0",)); thread.start(); thread.join()'""",
    ],
)
def test_what_a_command_starts_is_found_and_all_run_on(script: str, tmp_path: Path) -> None:
    """Forks, pipes, spawns of threads: the program is found at its start, and nobody sees that it was held."""
    wanted = shutil.copy(shutil.which("sleep") or "sleep", tmp_path / "wanted")
    text = script.format(wanted=wanted, python=sys.executable)
    with ExitStack() as stack:
        process = child.start(shlex.join(["sh", "-c", f"trap 'got=1' USR1; {text} && exit 7"]), stack)
        process.stop_after_exec()
        found = process.run_to_descendant(_runs("wanted"))
        assert found not in (None, process.pid)
        assert Path(f"/proc/{found}/wchan").exists()
        assert f"\nTracerPid:\t{os.getpid()}\n" in Path(f"/proc/{found}/status").read_text()
        assert process.poll() is None
        process.release()
        assert wait(process) == 7
        assert not Path(f"/proc/{found}").exists()


def test_a_command_that_starts_nothing_wanted_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        process = child.start("sh -c 'sleep 0; exit 3'", stack)
        process.stop_after_exec()
        assert process.run_to_descendant(_runs("wanted")) is None
        assert wait(process) == 3
    monkeypatch.setattr(child, "EXEC_PATIENCE", 0.2)
    with ExitStack() as stack:
        process = child.start("sh -c 'sleep 0.7; sleep 0; exit 4'", stack)
        process.stop_after_exec()
        assert process.run_to_descendant(_runs("wanted")) is None
        assert process.poll() is None
        assert "\nTracerPid:\t0\n" in Path(f"/proc/{process.pid}/status").read_text()
        assert wait(process) == 4


def test_what_is_held_ends_with_the_tracer(tmp_path: Path) -> None:
    wanted = shutil.copy(shutil.which("sleep") or "sleep", tmp_path / "wanted")
    with ExitStack() as stack:
        process = child.start(f"sh -c '{wanted} 99; true'", stack)
        process.stop_after_exec()
        found = process.run_to_descendant(_runs("wanted"))
        assert found is not None
    until(lambda: not Path(f"/proc/{found}").exists() and not Path(f"/proc/{process.pid}").exists())


def test_a_program_that_takes_long_to_start_is_waited_for(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_PATIENCE", -1.0)
    with ExitStack() as stack:
        process = child.start(f"{programs}/frameless", stack)
        process.stop_after_exec()
        assert process.run_to_entry()
        process.release()
        assert wait(process) == 0


def test_a_program_whose_start_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "library")
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "library"))
    monkeypatch.setattr(child, "_PATIENCE", 0.1)
    with ExitStack() as stack:
        process = child.start("true", stack)
        process.stop_after_exec()
        assert not process.run_to_entry()
        process.release()
        assert process.poll() is None


def test_program_that_never_begins(programs: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        # Its library is looked for beside it, and is not there.
        process = child.start(str(shutil.copy(programs / "frameless", tmp_path / "alone")), stack)
        process.stop_after_exec()
        assert not process.run_to_entry()
        process.release()
        assert wait(process) == 127


def test_a_program_that_is_killed_before_its_libraries_are_there() -> None:
    with ExitStack() as stack:
        process = child.start("true", stack)
        process.stop_after_exec()
        os.kill(process.pid, signal.SIGKILL)
        assert not process.run_to_entry()
        process.release()
        assert wait(process) == -signal.SIGKILL


def test_a_program_that_is_killed_before_it_is_released() -> None:
    with ExitStack() as stack:
        process = child.start("true", stack)
        process.stop_after_exec()
        assert process.run_to_entry()
        os.kill(process.pid, signal.SIGKILL)
        select.select(process.descriptors, [], [], 10)
        process.release()
        assert wait(process) == -signal.SIGKILL


def test_runs_to_entry_only_when_stopped() -> None:
    with ExitStack() as stack:
        process = child.start("true", stack)
        assert not process.run_to_entry()
        process.release()
        assert wait(process) == 0


def test_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """The signal of ``PR_SET_PDEATHSIG`` comes when a *thread* ends."""
    made = tmp_path / "made"
    with ExitStack() as stack:
        started: list[child.Child] = []

        def work() -> None:
            started.append(child.start(f"sh -c 'sleep 0.2; touch {made}'", stack))
            started[0].release()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        assert wait(started[0]) == 0
    assert made.exists()


def test_status_that_somebody_else_took() -> None:
    with ExitStack() as stack:
        process = child.start("sh -c 'exit 3'", stack)
        process.release()
        os.waitpid(process.pid, 0)
        assert process.poll() == 0
        assert process.poll() == 0


def test_standard_streams_of_a_program_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with ExitStack() as stack:
        process = child.start("true", stack)
        process.release()
        assert wait(process) == 0


@pytest.mark.parametrize("command", ["'", ""])
def test_commands_that_are_none(command: str) -> None:
    with pytest.raises(TraceError, match="-c command is"):
        child.words_of(command)


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    before = open_descriptors()
    monkeypatch.setattr(os, "fork", full)
    with ExitStack() as stack, pytest.raises(TraceError, match="cannot run true: Resource") as caught:
        child.start("true", stack)
    assert caught.value.hints == ("see ulimit -u and pids.max of the cgroup",)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@each_row(
    ("command", "piece"),
    [("ls | wc -l", "|"), ("a|b", "|"), ("cd x; ls", ";"), ("a && b", "&&"), ("sleep 1 &", "&"), ("ls 2>&1", "2>&1"),
     ("cat < f", "<"), ("echo $HOME", "$HOME"), ("ls `pwd`", "`pwd`"), ("ls $(pwd)", "$("),
     ("grep '|' f", ""), ('awk "{ print $1; }" f', ""), (r"find . -exec ls {} \;", ""), ("curl http://h/?a=1&b=2", ""),
     ("f a->b", ""), ("sh -c 'a | b'", ""), ("A=1 ls", "")],
)  # fmt: skip
def test_what_only_a_shell_understands(command: str, piece: str) -> None:
    assert child.shell_syntax(command) == piece


@pytest.mark.parametrize("command", ["cd /tmp", "LANG=C ls"])
def test_a_hint_to_a_shell(command: str) -> None:
    with ExitStack() as stack, pytest.raises(TraceError) as raised:
        child.start(command, stack)
    assert raised.value.hints == (f"-c \"sh -c '{command}'\" runs it in a shell",)


# ---------------------------------------------------------------------------------------------- confinement
# What the rest of a run needs, by script and options.


PLACE = Location("x.bt", 1, 1)


def of(*values: Type, kind: str = "printf", **options: Any) -> Needs:
    """Needs of a script that prints values of these types."""
    events = (EventSpec(0, kind, values, NoStaticPart(), PLACE),)
    legacy, on_cpus = options.pop("legacy", False), options.pop("on_cpus", False)
    return needs(Manifest((), (), events, (), Config()), RunOptions(**options), legacy=legacy, on_cpus=on_cpus)


def test_a_script_that_prints_numbers_needs_nothing() -> None:
    assert of(UINT64) == Needs()
    assert of(UINT64, output="out", format="json") == Needs()


@pytest.mark.parametrize("value", [USym(), Stack(True, 4)])
def test_user_addresses_need_other_processes(value: Type) -> None:
    wanted = of(value)
    assert set(wanted.capabilities) == {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE"}
    assert wanted.all_files == confinement.USER_SYMBOLS


def test_interpreters_are_looked_for_in_other_processes() -> None:
    maps = PythonMaps("processes", "codes", "names", "cursor")
    wanted = needs(Manifest((), (), (), (), Config(), python=maps), RunOptions(), legacy=False, on_cpus=False)
    assert set(wanted.capabilities) == {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE"}
    assert wanted.all_files == confinement.INTERPRETERS


@pytest.mark.parametrize("value", [KSym(), Stack(False, 4)])
def test_kernel_addresses_need_the_symbols(value: Type) -> None:
    wanted = of(value, debuginfo=("/debug",))
    assert set(wanted.capabilities) == {"CAP_SYSLOG"}
    assert {"/boot", "/debug"} <= set(wanted.read)
    assert not wanted.all_files


def test_debug_files_come_from_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert of(USym()).families == []
    monkeypatch.setenv("DEBUGINFOD_URLS", "https://debuginfod.example")
    wanted = of(USym())
    assert set(wanted.families) == set(Family)
    assert f"{tmp_path}/debuginfod_client" in wanted.write
    assert of(Stack(True, 4)).families == wanted.families
    assert of(UINT64, KSym()).families == [], "servers are not asked for the kernel"


def test_databases_of_names() -> None:
    assert of(Username()).families == [Family.UNIX]
    assert of(InterfaceName()).families == [Family.NETLINK]
    elsewhere = of(InterfaceName(), netns="blue")
    assert elsewhere.everything == confinement.NETWORK_NAMESPACE
    assert set(elsewhere.capabilities) == {"CAP_SYS_ADMIN"}


def test_functions_that_reach_out() -> None:
    assert of(kind="system").everything == confinement.SYSTEM
    wanted = of(kind="cat")
    assert wanted.all_files == confinement.CAT
    assert "CAP_SYSLOG" in wanted.capabilities
    assert of(kind="skboutput").existing
    assert of(legacy=True).existing == confinement.OLD_PROBES
    assert of(command="ls").signals
    assert of(on_cpus=True).cpu_events
    assert set(of(on_cpus=True).capabilities) == {"CAP_PERFMON"}


@pytest.mark.parametrize(("measures", "missed"), [(True, {}), (False, {"CAP_SYS_ADMIN": confinement.CPUS})])
def test_kernels_that_reserve_perf_events(monkeypatch: pytest.MonkeyPatch, measures: bool, missed: object) -> None:
    """As Debian's do: then CAP_PERFMON is not enough for a CPU that comes online."""
    monkeypatch.setattr(confinement, "_measures_cpus", lambda: measures)
    monkeypatch.setattr(bpf, "map_info", lambda _: None)
    loaded: Any = SimpleNamespace(manifest=Manifest((), (), (), (), Config()), map_fd=lambda _: 0)
    assert confinement._missed(of(on_cpus=True), [], loaded) == missed
    assert confinement._missed(of(), [], loaded) == {}


def test_output_files_are_replaced_in_their_directories(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/out")
    wanted = of(save=str(tmp_path / "link"), save_every=(1.0, str(tmp_path / "each")))
    assert wanted.write == [f"{tmp_path}/real", f"{tmp_path}/each"]
    assert not wanted.existing
    assert of(format="folded", output=str(tmp_path / "x")).write == [str(tmp_path)]
    assert of(save=os.devnull).existing


def test_bits() -> None:
    assert confinement.mask(["CAP_SYS_PTRACE", "CAP_KILL"]) == 1 << 19 | 1 << 5
    most = of(Stack(True, 1), Stack(False, 1), kind="cat", command="x", legacy=True)
    assert {*most.capabilities, *of(InterfaceName(), netns="x").capabilities} <= CAPABILITIES.keys()


def test_modules_can_be_imported_later() -> None:
    places = confinement.installation()
    assert os.path.realpath(sys.prefix) in places
    assert os.path.dirname(os.path.realpath(os.__file__)) in places
    assert str(Path(__file__).resolve().parents[3]) in places
    assert "/" not in places
