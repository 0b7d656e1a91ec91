"""Scripts that include kernel headers, as others write them, with installed headers and without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compile import SOURCES
from tests.support.headers import build_tree, debian_build, source_tree
from tests.support.machine import need
from tests.support.patience import patience

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).resolve().parents[2]

SLEEPER = "sleep 0.2"

CONNECTOR = """
import os, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
client.sendall(b"hello")
accepted.recv(5)
client.close()
accepted.close()
try:
    os.kill(0x3fffff, 0)
except ProcessLookupError:
    pass
"""


def run(script: str, folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = folder / "script.bt"
    path.write_text(script)
    known = {name: value for name, value in os.environ.items() if "KERNEL_" not in name or "TEST" in name}
    environment = {**known, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder), **environment}
    arguments = [sys.executable, "-m", "pytrace", "-q", str(path), "-c", command]
    return subprocess.run(
        arguments, capture_output=True, text=True, env=environment, check=False, timeout=patience(40), cwd=folder
    )


@pytest.fixture(params=["PYTRACE", "BPFTRACE", ""])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Debian's headers by either name of the variable, or none: constants come with pytrace."""
    if not request.param:
        return {}
    build = debian_build()
    source = f"{build.removesuffix('-amd64')}-common"
    return {f"{request.param}_KERNEL_SOURCE": source, f"{request.param}_KERNEL_BUILD": build}


@pytest.mark.needs("headers")
def test_states_of_tasks(tmp_path: Path, environment: dict[str, str]) -> None:
    need("tracepoint")
    done = run((SOURCES / "run_queue.bt").read_text(), tmp_path, SLEEPER, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "slept 1, waited 1, ends 128", (done.stdout, done.stderr)


@pytest.mark.needs("headers")
def test_families_and_states_of_sockets(tmp_path: Path, environment: dict[str, str]) -> None:
    need("kprobe", "syscalls")
    program = tmp_path / "connect.py"
    program.write_text(CONNECTOR)
    done = run((SOURCES / "connections.bt").read_text(), tmp_path, f"{sys.executable} {program}", **environment)
    assert done.returncode == 0, done.stderr
    lines = {line for line in done.stdout.split("\n") if line}
    expected = {"accepted INET", "closed 127.0.0.1 1", "no such process, not 1"}
    assert lines == expected, (done.stdout, done.stderr)


def test_kept_scripts_notice_changed_headers(tmp_path: Path) -> None:
    tree = build_tree(source_tree(tmp_path / "tree", linux__sched_h="#define TASK_RUNNING 5\n"))
    script = "#include <linux/sched.h>\nbegin { print(TASK_RUNNING); exit(); }"
    variable = {"PYTRACE_KERNEL_BUILD": str(tree)}
    assert run(script, tmp_path, "true", **variable).stdout.strip() == "5"
    assert run(script, tmp_path, "true", **variable).stdout.strip() == "5"
    (tree / "include/linux/sched.h").write_text("#define TASK_RUNNING 66\n")
    assert run(script, tmp_path, "true", **variable).stdout.strip() == "66"
    assert run(script, tmp_path, "true").stdout.strip() == "0"
