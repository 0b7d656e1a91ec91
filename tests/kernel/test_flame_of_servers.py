"""``pytrace flame -p PID`` of servers in Node and Go: stacks are whole, and those that the programs say themselves."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.server import Running, Server

PROGRAMS = Path(__file__).parent.parent / "programs"
JAVASCRIPT = re.compile(r"(?:JS|Function|Script):[~^*+']*(.*?) ?(?:node:|/).*:\d+:\d+")
COMPUTES = re.compile(r"JS:[~^*+']*burn ")
WRAPPERS = ("runtime.runOpenDeferFrame", "runtime.deferCallSave")
"""Functions of Go's runtime that it leaves out of stacks."""
LINKED = "Builtins_InterpreterEntryTrampoline"
"""A function of Node's own that V8 interprets: it has no code of its own, so no name."""

Stack = tuple[str, ...]

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="unwind tables are for x86-64"),
    pytest.mark.usefixtures("no_leaks"),
]


def sampled(
    server: Server, command: list[str], requests: int, path: Path, leaf: Callable[[str], bool]
) -> tuple[dict[Stack, int], set[Stack]]:
    """Samples by stack, outermost first, up to the function that computes; and the stacks that the program said."""
    need("bpf_loop")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        pid = program.stdout.readline().strip()
        said: list[str] = []

        def work(_run: Running) -> None:
            said.extend(program.communicate(f"{requests}\n"))

        words = ("flame", "-U", "-F", "997", "-p", pid, "-o", str(path))
        # It ends with the program. Ctrl-C while it names what was sampled would print the rest as numbers.
        result = server.run(words, timeout=120, while_attached=work)
        assert result.status == 0, result
    Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)
    found: dict[Stack, int] = {}
    for line in path.read_text().splitlines():
        text, _, count = line.rpartition(" ")
        frames = text.split(";")[2:]  # after the program's name and process id
        place = next((at for at, name in enumerate(frames) if leaf(name)), None)
        stack = tuple(frames if place is None else frames[: place + 1])
        found[stack] = found.get(stack, 0) + int(count)
    return found, {tuple(reversed(names)) for names in json.loads(said[0])}


def check(found: dict[Stack, int], roots: tuple[str, ...]) -> None:
    """Nearly all samples begin where threads do: the others are of code that was mapped a moment before."""
    total = sum(found.values())
    cut = {stack: count for stack, count in found.items() if not stack or stack[0] not in roots}
    assert total > 100
    assert sum(cut.values()) < 0.05 * total, cut


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_node(server: Server, tmp_path: Path) -> None:
    """Functions of JavaScript between those of V8, with the options that name all of them."""
    options = [
        "--perf-basic-prof",
        "--interpreted-frames-native-stack",
        "--no-turbo-inlining",
        "--no-logfile-per-isolate",
    ]
    command = ["node", *options, f"--logfile={tmp_path}/v8.log", str(PROGRAMS / "server.js")]
    found, known = sampled(
        server, command, 400, tmp_path / "x.folded", lambda name: COMPUTES.match(name) is not None
    )  # fmt: skip
    check(found, ("_start", "clone3"))
    computed = {stack: count for stack, count in found.items() if COMPUTES.match(stack[-1]) and stack[0] == "_start"}
    assert sum(computed.values()) > 0.5 * sum(found.values())
    others = [stack for stack in computed if not any(is_same(stack, one) for one in known)]
    # At its first instructions a function has no frame yet, and the stack lacks its caller.
    early = {(*one[:-2], one[-1]) for one in known}
    assert all(any(is_same(stack, one) for one in early) for stack in others), "\n".join(map(";".join, others))
    assert sum(computed[stack] for stack in others) < 0.02 * sum(computed.values())


def is_same(stack: Stack, known: Stack) -> bool:
    """Whether a stack has the functions of JavaScript that the program had, in order and no others."""
    frames = [names_of(frame) for frame in stack if frame == LINKED or JAVASCRIPT.match(frame)]
    return len(frames) == len(known) and all(
        not names or name in names for names, name in zip(frames, known, strict=True)
    )


def names_of(frame: str) -> list[str]:
    """The function of a frame: several where one came after another, none where V8 has no name."""
    return [match[1] for text in frame.split(" or ") if (match := JAVASCRIPT.match(text))]


@pytest.fixture(scope="module")
def go_server(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program without DWARF, of which not all may be read after an interrupt: the runtime's tables have as much."""
    folder = tmp_path_factory.mktemp("go")
    shutil.copy(PROGRAMS / "server.go", folder / "main.go")
    (folder / "go.mod").write_text("module example.com/server\n\ngo 1.18\n")
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    subprocess.run(
        ["go", "build", "-ldflags=-w", "-o", "server", "."], cwd=folder, check=True, env=environment, timeout=100
    )
    return str(folder / "server")


@pytest.mark.needs("go")
def test_go(server: Server, go_server: str, tmp_path: Path) -> None:
    """Goroutines, system stacks of the runtime and its handlers of signals, and inlined functions."""
    found, known = sampled(server, [go_server], 300, tmp_path / "x.folded", lambda name: name == "main.burn")
    check(found, ("runtime.goexit.abi0", "runtime.mstart.abi0", "clone3", "_start", "runtime.rt0_go.abi0"))
    computed = {stack: count for stack, count in found.items() if stack[-1] == "main.burn"}
    assert sum(computed.values()) > 0.5 * sum(found.values())
    stacks = {tuple(name.removesuffix(".abi0") for name in stack if name not in WRAPPERS) for stack in computed}
    assert stacks <= known, stacks - known
