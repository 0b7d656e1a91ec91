"""``pytrace fleet`` asks real hosts: network namespaces with an sshd each, some of them faulty, and local agents."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytrace.remote import messages
from pytrace.remote.messages import Hello, Refused
from tests.support import faulty_hosts, ssh_hosts
from tests.support.agents import COUNTING, ROOT, call
from tests.support.patience import patience
from tests.support.ssh_hosts import AGENT, wait_for

pytestmark = pytest.mark.usefixtures("no_leaks")

@pytest.mark.skipif(bool(ssh_hosts.missing()), reason=f"needs {ssh_hosts.missing()}")
def test_hosts_and_faults(tmp_path: Path) -> None:
    """Seven hosts; scripts/measure-fleet --hosts asks fifty."""
    faulty_hosts.check(faulty_hosts.ask(tmp_path, 7, 14, "--every", "1"))


def local(*words: str) -> subprocess.Popen[str]:
    """``pytrace fleet`` with agents of this machine: ClusterShell's worker ``exec`` runs the command here."""
    command = [sys.executable, "-m", "pytrace", "fleet", "--worker", "exec", "--agent", AGENT, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_ctrl_c_prints_what_there_is() -> None:
    with local("--hosts", "a[1-3]", "-e", COUNTING) as fleet:
        assert wait_for(fleet, "attached") == "attached on 3 of 3 hosts\n"
        call(11)
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(30))
    assert (fleet.returncode, out.strip(), error) == (0, "@: 33", "3 of 3 hosts answered\n")


def test_a_killed_controller_leaves_nothing() -> None:
    """The fixture looks for agents and for what they attached."""
    with local("--hosts", "a[1-3]", "-e", COUNTING) as fleet:
        wait_for(fleet, "attached")
        fleet.kill()
        fleet.communicate()


def test_hosts_refuse_and_compile_for_themselves() -> None:
    with local("--hosts", "a[1-2]", "--compile-there", "-e", "begin { @ = ; }") as fleet:
        out, error = fleet.communicate(timeout=patience(30))
    assert (fleet.returncode, out) == (1, "")
    assert "a[1-2]: -e:1:13-14: ERROR: syntax: unexpected ';'" in error
    assert "0 of 2 hosts answered; 2 refused (kernel " in error
    words = ("--compile-there", "-e", "begin { @[str($1)] = $2; exit(3); }", "abc", "5")
    with local("--hosts", "a1", "--by", "host", *words) as fleet:
        out, error = fleet.communicate(timeout=patience(30))
    assert (fleet.returncode, out.strip()) == (1, "@[a1, abc]: 5")


def test_stages_stop_at_the_first_refusal(tmp_path: Path) -> None:
    """The run on the host of the first stage ends, its results count, and the last two hosts are not asked."""
    said = (
        Hello(protocol=1, version="0", host="x", kernel="4.19", machine="x", wall=0, monotonic=0),
        Refused(text="ERROR: no such tracepoint\n", status=1),
    )
    refusing = tmp_path / "messages"
    refusing.write_bytes(b"".join(map(messages.encode, said)))
    command = f"if [ %h = a2 ]; then cat {refusing}; else exec {AGENT}; fi"
    stages = ("--stage", "1,2,all", "--soak", "0", "--every", "1")
    with local("--hosts", "a[1-4]", *stages, "--agent", command, "-e", COUNTING) as fleet:
        assert wait_for(fleet, "attached") == "stage 1 of 3: attached on 1 of 1 host\n"
        call(5)
        out, error = fleet.communicate(timeout=patience(60))
    assert fleet.returncode == 1
    assert int(out.split()[1]) >= 5, out
    assert "a[3-4]: not asked: the roll-out stopped (a2: no such tracepoint)\n" in error
    assert error.endswith("1 of 4 hosts answered; 2 not asked, 1 refused (kernel 4.19)\n")


def test_hosts_without_pytrace() -> None:
    """What they need is sent, used once, and removed: a Python that is not this environment's runs the agent."""
    before = set(Path(tempfile.gettempdir()).glob("pytrace-push-*"))
    words = ("--push=once", "--agent", f"{sys.base_prefix}/bin/python3", "--worker", "exec", "--hosts", "a[1-2]")
    command = [sys.executable, "-m", "pytrace", "fleet", *words, "-e", COUNTING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as fleet:
        assert wait_for(fleet, "attached") == "attached on 2 of 2 hosts\n"
        call(11)
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(60))
    assert (fleet.returncode, out.strip(), error) == (0, "@: 22", "2 of 2 hosts answered\n")
    assert set(Path(tempfile.gettempdir()).glob("pytrace-push-*")) == before
