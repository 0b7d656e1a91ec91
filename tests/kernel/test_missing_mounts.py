"""File systems that are not mounted, or show less: what works without them works, else the error says what to mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.test_surroundings import shell
from tests.support.machine import need

pytestmark = [pytest.mark.own_process, pytest.mark.usefixtures("no_leaks")]

SWITCHES = "tracepoint:sched:sched_switch { @ = count(); exit(); }"
SAMPLES = "profile:hz:99 { @[kstack(2)] = count(); exit(); }"
CALLS = "uprobe:libc:getppid { @ = count(); } interval:ms:50 { printf(\"over\\n\"); exit(); }"
RIGHTS = "+bpf,+perfmon,+dac_override,+dac_read_search"
USER = f"setpriv --reuid=54321 --regid=54321 --clear-groups --inh-caps {RIGHTS} --ambient-caps {RIGHTS} env HOME=/"
NO_TRACEFS = "ERROR: tracefs is not mounted\nHINT: run as root: mount -t tracefs tracefs /sys/kernel/tracing\n"
ALL_OF_SYS = "umount -l /sys"
TRACEFS = "umount -l /sys/kernel/tracing; umount -l /sys/kernel/debug 2>/dev/null; true"
EMPTY_TRACEFS = "mount -t tmpfs tmpfs /sys/kernel/tracing; umount -l /sys/kernel/debug 2>/dev/null; true"


def without(what: str, tmp_path: Path, script: str, options: str = "") -> tuple[int, str, str]:
    """Run a script in a mount namespace of its own, in which the command *what* was run first."""
    command = f"unshare -m sh -c '{what}; exec \"$@\"' sh $P -q {options} -e \"$S\""
    done = shell(command, tmp_path, S=script)
    assert "BUG" not in done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("script", [SAMPLES, CALLS, "begin { printf(\"over\\n\"); exit(); }"])
def test_no_sys(tmp_path: Path, script: str) -> None:
    need("uprobe", "perf_events")
    status, out, _ = without(ALL_OF_SYS, tmp_path, script)
    assert status == 0
    assert "over" in out or "@[" in out


@pytest.mark.parametrize("what", [ALL_OF_SYS, TRACEFS, EMPTY_TRACEFS], ids=["no_sys", "no_tracefs", "empty"])
def test_tracepoints_need_tracefs(tmp_path: Path, what: str) -> None:
    need("tracepoint")
    assert without(what, tmp_path, SWITCHES) == (1, "", NO_TRACEFS)


def test_user_probes_need_no_tracefs(tmp_path: Path) -> None:
    need("uprobe")
    status, out, said = without(TRACEFS, tmp_path, CALLS)
    assert (status, out.startswith("over"), said) == (0, True, "")


def test_pinned_iterators_need_bpffs(tmp_path: Path) -> None:
    need("iter")
    what = "mount -t tmpfs tmpfs /sys/fs/bpf"
    status, out, said = without(what, tmp_path, "iter:task:faults_pin { printf(\"x\"); }")
    assert (status, out) == (1, "")
    assert "its directory must be in a mounted bpffs (mount -t bpf bpf /sys/fs/bpf)" in said


@pytest.mark.parametrize("mode", ["hidepid=2"])
def test_processes_are_hidden(tmp_path: Path, mode: str) -> None:
    """Root sees them all the same; others trace what they may see."""
    need("uprobe")
    what = f"mount -t proc -o {mode} proc /proc"
    status, out, _ = without(what, tmp_path, CALLS, "-c 'sleep 1'")
    assert (status, out.startswith("over")) == (0, True)
    status, out, said = without(f'{what}; set -- {USER} "$@"', tmp_path, CALLS)
    assert (status, out.startswith("over")) == (0, True), said


def test_no_symbols_of_processes_that_are_hidden(tmp_path: Path) -> None:
    """Addresses are printed where names may not be read; the run does not fail."""
    need("tracepoint")
    script = "tracepoint:syscalls:sys_enter_clock_nanosleep { @[ustack(2)] = count(); } "
    script += "interval:ms:300 { printf(\"over\\n\"); exit(); }"
    what = f'mount -t proc -o hidepid=2 proc /proc; (sleep 0.1; sleep 0.1; sleep 0.1) & set -- {USER} "$@"'
    status, out, said = without(what, tmp_path, script)
    assert (status, "over" in out) == (0, True), said
