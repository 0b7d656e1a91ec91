"""Code that a program replaces at the same addresses while it is traced: no stack has the name of other code."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest

from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.server import Server

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the code is that of x86-64")

PHASES, CALLS = 3, 200

SCRIPT = """
t:syscalls:sys_enter_getsid /pid == cpid/ { $phase = args.pid - 1000000; print(($phase, ustack)); @pid = pid;
  @[$phase, ustack] = count(); }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that makes a page of code, and replaces it by other code."""
    need("uprobe")
    folder = tmp_path_factory.mktemp("code")
    return compiled(folder, "replacing", SOURCES / "replaced_code.c", "-O1", "-fno-omit-frame-pointer")


def names(stack: str) -> set[int]:
    """The phases that the stack of one may be of, by the names in it."""
    (frame,) = re.findall(r"^ *((?:phase \d|\[JIT\]).*)\+\d+$", stack, re.MULTILINE)
    assert re.fullmatch(r"phase \d( or phase \d)*", frame), stack
    return {int(number) for number in re.findall(r"\d", frame)}


@pytest.mark.parametrize("way", ["dump", "map"])
def test_replaced_code_has_no_name_of_another_time(server: Server, program: Path, way: str) -> None:
    result = server.run(("-f", "json", "-e", SCRIPT, "-c", f"{program} {way} {PHASES} {CALLS}"), timeout=60)
    assert result.status == 0, result
    events: list[tuple[int, set[int]]] = []
    keys: dict[int, set[int]] = {}
    for row in map(json.loads, result.stdout.splitlines()):
        if row["type"] == "value":
            phase, stack = row["data"]
            events.append((phase, names(stack)))
        elif "@pid" in row.get("data", ()):
            pid = row["data"]["@pid"]
            (Path("/tmp") / (f"jit-{pid}.dump" if way == "dump" else f"perf-{pid}.map")).unlink()
        elif row["type"] == "map":
            for key, count in row["data"]["@"].items():
                phase, _, stack = key.partition(",")
                assert count == CALLS
                keys[int(phase)] = names(stack)
    assert [phase for phase, _ in events] == [number for number in range(PHASES) for _ in range(CALLS)]
    # Where the time of a stack is not known exactly it may have the names of others, too.
    assert all(phase in found for phase, found in events), events
    assert list(keys) == list(range(PHASES))
    assert all(phase in found for phase, found in keys.items()), keys
