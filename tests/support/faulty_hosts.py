"""Hosts that are asked one question, some of them faulty: what each did, and what the fleet said."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import pytrace
from tests.support import ssh_hosts
from tests.support.ssh_hosts import AGENT, HERE, OWN, wait_for

FAULTY = 3
"""Hosts at the end that cannot answer: no pytrace, a flood, no sshd."""
CALLS = f"{OWN} t:syscalls:sys_enter_getppid /{HERE} && comm == \"caller\"/ {{ @ = count(); }}"


class Answered(msgspec.Struct):
    """What the fleet said and what was done."""

    names: list[str]
    status: int
    lines: list[str]
    """Of standard error output, after the script was attached."""
    data: dict[str, int]
    """Of standard output."""
    counts: dict[str, int]
    """Of the snapshot."""
    done: dict[str, int]
    """Calls on each host that answers."""
    left: dict[str, list[int]]
    """Processes that stayed."""


def _flood(folder: Path) -> str:
    path = folder / "flood"
    path.write_text(f"#!{sys.executable} -S\nimport os\nwhile True: os.write(1, b'x' * 4096)\n")
    path.chmod(0o755)
    return str(path)


def ask(folder: Path, number: int, duration: int, *words: str) -> Answered:
    """Ask *number* hosts: the last three are faulty, the third is unplugged during its run.

    The second has a slow line, the fourth another Python. The script must be attached everywhere, and the calls be
    done, before *duration* is over.
    """
    healthy = number - FAULTY
    agents = [AGENT] * healthy + ["/nowhere/pytrace agent", _flood(folder), ""]
    agents[3] = _other_python()
    saved = folder / "all.pts"
    words = (*words, "--by", "host", "-e", CALLS, "--duration", str(duration), "--save", str(saved))
    with ssh_hosts.bed(folder, agents) as bed:
        bed.hosts[1].slow_down("256kbit")
        with bed.fleet(*words, "-f", "json") as fleet:
            with killed(fleet):
                line = wait_for(fleet, f"attached on {healthy} of {number} hosts")
                done = {}
                for at, host in enumerate(bed.hosts[:healthy], start=1):
                    host.calls(100 * at)
                    done[host.name] = 100 * at
                unplugged = bed.hosts[2]
                unplugged.unplug()
                del done[unplugged.name]
                out, error = fleet.communicate(timeout=duration + 200)
        unplugged.kill()  # its agent ends without a heartbeat, too: tests/kernel/test_agents.py
        left = bed.left()
    counts = dict(pytrace.Snapshot.load(saved).to_dict("@"))
    data = json.loads(out.splitlines()[0])["data"]["@"]
    names = [host.name for host in bed.hosts]
    return Answered(names, fleet.returncode, [line, *error.splitlines()], data, counts, done, left)


def _other_python() -> str:
    """An agent in Debian's Python, with the packages of this one if they are of the same version."""
    other = "/usr/bin/python3"
    code = "import sys; print(sys.version_info[:2] == tuple(map(int, sys.argv[1:])))"
    version = [other, "-c", code, *map(str, sys.version_info[:2])]
    if not Path(other).exists() or subprocess.run(version, capture_output=True, check=True).stdout != b"True\n":
        return AGENT
    return f"env PYTHONPATH={sysconfig.get_path('purelib')} {other} -m pytrace agent"


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[None]:
    """A process is killed when the block ends by an error."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def check(answered: Answered) -> None:
    """Counts are what was done on each host, every fault is reported by host, and nothing is left on any of them."""
    lines, names = answered.lines, answered.names
    nowhere, flood, dead = names[-FAULTY:]
    assert answered.status == 1, lines
    assert answered.left == {}
    answers = f"{len(names) - FAULTY - 1} of {len(names)} hosts answered; 3 failed, 1 silent since "
    assert lines[-1].startswith(answers), lines
    assert f"{dead}: Connection refused (port 22)" in lines, lines
    assert any(line.startswith(f"{nowhere}: ") and "/nowhere/pytrace" in line for line in lines), lines
    assert f"{flood}: what it prints is no message of pytrace agent" in lines, lines
    assert any(line.startswith(f"{names[2]}: nothing was heard of the agent for") for line in lines), lines
    assert {name: answered.counts[name] for name in answered.done} == answered.done
    assert {name: answered.data[name] for name in answered.done} == answered.done
    assert set(answered.counts) <= {*answered.done, names[2]}
