"""``in_scope(curtask)`` says what ``in_scope`` says, whatever the filters."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.compile import SOURCES
from tests.support.machine import need
from tests.support.server import Server

pytestmark = pytest.mark.kernel


def compare(server: Server, *options: str) -> tuple[int, int]:
    """How many tasks that left a processor were selected by the options, and how many were not."""
    need("rawtracepoint")
    with subprocess.Popen(["sh", "-c", "while sleep 0.01; do :; done"]) as busy:
        others = [subprocess.Popen(["sleep", "60"]) for _ in range(20 if "PID,MANY" in options else 0)]
        try:
            many = ",".join(str(other.pid) for other in others)
            words = [item.replace("PID", str(busy.pid)).replace("MANY", many) for item in options]
            script = (SOURCES / "task_filters.bt").read_text()
            result = server.run(("-q", "-f", "json", *words, "-e", script), timeout=60)
        finally:
            for process in (busy, *others):
                process.kill()
            for other in others:
                other.wait()
    assert result.status == 0, result
    found: dict[str, object] = {}
    for line in result.stdout.splitlines():
        found.update(json.loads(line).get("data", {}))
    assert "@wrong" not in found, found
    numbers = [found.get(name, 0) for name in ("@inside", "@outside")]
    assert all(isinstance(number, int) for number in numbers)
    return int(str(numbers[0])), int(str(numbers[1]))


@pytest.mark.parametrize(
    "options",
    [
        ("-p", "PID"),
        ("-p", "PID,1,2"),
        ("-p", "PID,MANY"),
        ("-p", "PID", "--follow"),
        ("--comm", "sh"),
        ("--comm", "sh", "--uid", "0"),
        ("--comm", "a", "--comm", "b", "--comm", "c", "--comm", "d", "--comm", "e", "--comm", "f", "--comm", "sh"),
        ("--comm", "sh", "--uid", "11", "--uid", "12", "--uid", "13", "--uid", "0"),
        ("-c", "sh -c 'sleep 0.1; sleep 0.1'", "--follow"),
        ("-c", "sh -c 'sleep 0.1; sleep 0.1'", "--follow", "--comm", "sleep"),
    ],
)
def test_the_same_tasks_are_selected(server: Server, options: tuple[str, ...]) -> None:
    inside, outside = compare(server, *options)
    assert inside
    assert outside


def test_users_and_namespaces_of_all_tasks(server: Server) -> None:
    assert compare(server, "--uid", str(os.getuid()))[0]
    assert compare(server, "--uid", "54321")[0] == 0
    assert compare(server, "--netns", f"/proc/{os.getpid()}/ns/net")[0]


def test_cgroups(server: Server) -> None:
    root = next((Path(path) for path in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if _is_version_2(path)), None)
    if root is None:
        pytest.skip("no cgroups of version 2 are mounted")
    assert compare(server, "--cgroup", str(root))[1] == 0
    group = root / f"pytrace-test-{os.getpid()}"
    group.mkdir()
    try:
        assert compare(server, "--cgroup", str(group))[0] == 0
        words = f"sh -c 'echo $$ > {group}/cgroup.procs; sleep 0.05; sleep 0.05; echo $$ > {root}/cgroup.procs'"
        assert compare(server, "--cgroup", str(group), "-c", words)[0]
    finally:
        group.rmdir()


def _is_version_2(path: str) -> bool:
    return os.path.exists(f"{path}/cgroup.controllers")
