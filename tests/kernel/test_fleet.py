"""``pytrace fleet`` asks real hosts: network namespaces with an sshd each, some of them faulty, and local agents."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pytrace
from pytrace.remote import messages
from pytrace.remote.messages import Hello, Refused
from tests.support import ssh_hosts
from tests.support.agents import COUNTING, ROOT, call
from tests.support.patience import patience
from tests.support.ssh_hosts import AGENT, HERE, OWN, wait_for

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLS = f"{OWN} t:syscalls:sys_enter_getppid /{HERE} && comm == \"caller\"/ {{ @ = count(); }}"


@pytest.mark.skipif(bool(ssh_hosts.missing()), reason=f"needs {ssh_hosts.missing()}")
def test_hosts_and_faults(tmp_path: Path) -> None:
    """Counts are the sum of what each host did; every fault is reported by host, and leaves nothing on any of them."""
    flood = tmp_path / "flood"
    flood.write_text(f"#!{sys.executable} -S\nimport os\nwhile True: os.write(1, b'x' * 4096)\n")
    flood.chmod(0o755)
    agents = [AGENT, AGENT, AGENT, AGENT, "/nowhere/pytrace agent", str(flood), ""]
    with ssh_hosts.bed(tmp_path, agents) as bed:
        web = bed.hosts
        saved = tmp_path / "all.pts"
        words = ("--by", "host", "--every", "1", "-e", CALLS, "--duration", "12", "--save", str(saved), "-f", "json")
        with bed.fleet(*words) as fleet:
            assert wait_for(fleet, "attached on") == "attached on 4 of 7 hosts\n"
            for number, host in enumerate(web[:4], start=1):
                host.calls(1000 * number)
            web[2].unplug()
            out, error = fleet.communicate(timeout=patience(60))
        assert fleet.returncode == 1, error
        web[2].kill()  # its agent ends without a heartbeat, too: tests/kernel/test_agents.py
        assert bed.left() == {}
    lines = error.splitlines()
    assert lines[-1].startswith("3 of 7 hosts answered; 3 failed, 1 silent since "), error
    assert "web07: Connection refused (port 22)" in lines
    assert any(line.startswith("web05: ") and "/nowhere/pytrace" in line for line in lines), error
    assert "web06: what it prints is no message of pytrace agent" in lines
    assert any(line.startswith("web03: nothing was heard of the agent for") for line in lines), error
    counts = pytrace.Snapshot.load(saved).to_dict("@")
    assert {name: counts[name] for name in ("web01", "web02", "web04")} == {"web01": 1000, "web02": 2000, "web04": 4000}
    assert json.loads(out.splitlines()[0])["data"]["@"]["web02"] == 2000


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
