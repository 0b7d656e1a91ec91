"""``pystack``: stacks of CPython, compared frame by frame with those that the interpreter itself sees."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.pythons import PYTHONS, Python
from tests.support.server import Server

SHAPES = Path(__file__).resolve().parents[1] / "programs" / "python_stacks.py"
OPEN = 't:syscalls:sys_enter_openat /pid == cpid && str(args.filename) == "/dev/null"/ '
FRAME = re.compile(r"(?m)^ *(.*)\+\d+@(.*):(\d+)$")

MIXED = "config = { python_frames = true } "
CALLED_FROM_C = frozenset({"shape_sort", "shape_regular_expression", "shape_reduce"})
"""Methods whose callbacks C functions call."""

Stack = list[tuple[str, int]]

pytestmark = pytest.mark.usefixtures("started", "no_leaks")


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.run(("--version",))


def frames(text: str) -> Stack:
    """Functions and lines of a printed stack."""
    return [(name, int(line)) for name, _, line in FRAME.findall(text)]


def mixed(text: str) -> list[tuple[str, int]]:
    """Functions of a mixed stack; those of C have line 0."""
    lines = [line.strip() for line in text.strip().splitlines()]
    found = [FRAME.match(line) for line in lines if not line.startswith("[inlined]")]
    return [
        (match[1], int(match[3])) if match is not None and is_python(match[2]) else (line.partition("+")[0], 0)
        for match, line in zip(found, (line for line in lines if not line.startswith("[inlined]")), strict=True)
    ]


def is_python(file: str) -> bool:
    """True for a source file of Python."""
    return file.endswith(".py") or file.startswith("<")


def check_places(stack: list[tuple[str, int]], minor: int) -> set[str]:
    """C functions are where C calls Python, and nowhere else. Returns the methods whose callbacks C called."""
    called, between = set(), 0
    inner = ""
    assert not any("EvalFrameDefault" in name or "_TAIL_CALL_" in name for name, _ in stack)
    for name, line in stack:
        if not line:
            between += 1
            continue
        name = name.rpartition(".")[2]
        if inner in {"<lambda>", "sub"} and name in CALLED_FROM_C:
            assert (between > 0) == (inner == "<lambda>" or minor < 11)
            called.add(name)
        elif inner == name == "down":
            assert (between == 0) == (minor >= 11)
        inner, between = name, 0
    return called


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_stacks_are_those_of_the_interpreter(server: Server, python: Python, tmp_path: Path) -> None:
    command = " ".join([*python.command, str(SHAPES), "30"])
    script, output = MIXED + OPEN + "{ print((tid, pystack, ustack)); }", tmp_path / "output"
    result = server.run(("-q", "-f", "json", "-o", str(output), "-e", script, "-c", command), timeout=100)
    assert result.stderr == ""
    seen: dict[int, list[Stack]] = defaultdict(list)
    walked: dict[int, list[Stack]] = defaultdict(list)
    joined: dict[int, list[Stack]] = defaultdict(list)
    called = set()
    for thread, stack in map(json.loads, result.stdout.splitlines()):
        seen[thread].append([(name, number) for name, number in stack])
    for row in map(json.loads, output.read_text().splitlines()):
        if row["type"] == "value":
            thread, python_stack, stack = row["data"]
            walked[thread].append(frames(python_stack))
            called |= check_places(mixed(stack), python.minor)
            joined[thread].append([(name, line) for name, line in mixed(stack) if line])
    assert sum(map(len, seen.values())) > 300
    assert walked == seen
    assert {thread: [stack[:60] for stack in stacks] for thread, stacks in joined.items()} == {
        thread: [stack[:60] for stack in stacks] for thread, stacks in seen.items()
    }
    assert called == CALLED_FROM_C


def test_at_most_so_many_frames(server: Server, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(
        "import os\ndef down(n):\n    return down(n - 1) if n else os.open('/dev/null', 0)\ndown(300)\n"
    )
    script = OPEN + "{ print((len(pystack), len(pystack(3)))); print(pystack(folded, 2)); }"
    result = server.run(("-q", "-e", script, "-c", f"{PYTHONS[0].command[0]} {tmp_path}/deep.py"), timeout=60)
    assert result.stdout.splitlines()[:2] == ["(127, 3)", "down;down"]


def test_code_that_is_compiled_again_and_again(server: Server, tmp_path: Path) -> None:
    """Names are those of the code that ran, also where other code was at the same addresses before."""
    (tmp_path / "again.py").write_text(
        "import os\n"
        "for number in range(500):\n"
        "    name = f'f{number % 89:02}'\n"
        "    text = f'import os\\n' + '\\n' * (number % 97)\n"
        "    text += f'def {name}(): os.close(os.open(\"/dev/null\", 0))\\n{name}()'\n"
        "    exec(compile(text, f'<file {number % 83:02}>', 'exec'), {})\n"
    )
    for python in PYTHONS:
        command = " ".join([*python.command, f"{tmp_path}/again.py"])
        result = server.run(("-q", "-e", OPEN + "{ print(pystack(2)); }", "-c", command), timeout=60)
        places = FRAME.findall(result.stdout)
        assert len(places) == 1000
        for number, (inner, outer) in enumerate(zip(places[::2], places[1::2], strict=True)):
            line = 2 + number % 97
            file = f"<file {number % 83:02}>"
            assert inner == (f"f{number % 89:02}", file, str(line)), python
            assert outer == ("<module>", file, str(line + 1)), python


def test_a_process_that_ended_keeps_its_names(server: Server, tmp_path: Path) -> None:
    """A stack that is printed when its process is gone, and those of forked processes, which are not known before."""
    (tmp_path / "forks.py").write_text(
        "import os\n"
        "def child():\n    os.open('/dev/null', 0)\n    os._exit(0)\n"
        "for _ in range(20):\n    pid = os.fork()\n    pid or child()\n    os.waitpid(pid, 0)\n"
    )
    script = 't:syscalls:sys_enter_openat /ppid == cpid && str(args.filename) == "/dev/null"/ '
    command = f"{PYTHONS[0].command[0]} {tmp_path}/forks.py"
    result = server.run(("-q", "-e", script + "{ @[pystack] = count(); }", "-c", command), timeout=60)
    stacks = [frames(text) for text in result.stdout.split("@[")[1:]]
    assert stacks == [[("child", 3), ("<module>", 7)]] * 20


def test_sampled_while_it_runs(server: Server, tmp_path: Path) -> None:
    """Of a process that runs already, with -p and without."""
    (tmp_path / "busy.py").write_text(
        "def busy():\n    while True:\n        pass\ndef main():\n    busy()\nprint('on', flush=True)\nmain()\n"
    )
    with subprocess.Popen(
        [*PYTHONS[0].command, f"{tmp_path}/busy.py"], stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()
            probe = f"profile:hz:99 /pid == {program.pid}/"
            script = f"{probe} {{ @[pystack(folded), ustack(folded)] = count(); }} interval:ms:100 {{ print(@); }}"
            for options in (("-p", str(program.pid)), ()):
                # Without -p the first ones come before the unwind tables are read.
                result = server.run(
                    (*options, "-e", MIXED + script), timeout=60, when_attached=("signal INT",),
                    while_attached=lambda run: run.until_printed(", _start;"),
                )  # fmt: skip
                keys = re.findall(r"(?m)^@\[(.*), (.*)\]: \d+$", result.stdout)
                assert {key[0] for key in keys} == {"<module>;main;busy"}
                for _, stack in keys:
                    assert re.search("(^|;)<module>;(.*;)?main;(.*;)?busy(;|$)", stack)
        finally:
            program.kill()


def test_a_process_without_python(server: Server) -> None:
    script = "t:syscalls:sys_enter_openat /pid == cpid/ { @ = len(pystack); }"
    result = server.run(("-q", "-e", script, "-c", "/bin/true"))
    assert result.stderr == ""
    assert "@: 0" in result.stdout


DAMAGED = """
import ctypes, os, sys
def word(address):
    return ctypes.c_uint64.from_address(address)
def damaged(offset, value):
    frame = word(id(sys._getframe()) + 24).value  # PyFrameObject.f_frame
    place = word(frame + offset)
    right = place.value
    place.value = value or frame
    os.open("/dev/null", 0)
    place.value = right
previous, code, instruction = 48, 32, 56
damaged(previous, 0)
for address in (16, 0xffffffff81000000, 1 << 63):
    damaged(previous, address)
damaged(code, id(None))
damaged(code, 1)
damaged(instruction, 1)
"""


@pytest.mark.skipif(all(python.minor != 11 for python in PYTHONS), reason="offsets of CPython 3.11")
def test_frames_that_are_damaged(server: Server, tmp_path: Path) -> None:
    """A ring of frames, frames where nothing is, and code that is none: the stack ends there, and is counted."""
    (tmp_path / "damaged.py").write_text(DAMAGED)
    python = next(python for python in PYTHONS if python.minor == 11)
    script = OPEN + "{ print(len(pystack)); }"
    result = server.run(("-e", script, "-c", f"{python.command[0]} {tmp_path}/damaged.py"), timeout=60)
    assert [int(line) for line in result.stdout.split() if line.isdecimal()] == [127, 1, 1, 1, 0, 0, 2]
    assert "5 pystacks truncated where frames could not be read" in result.stderr


def test_beside_native_stacks(server: Server, tmp_path: Path) -> None:
    """Both kinds hold the command after its exec."""
    (tmp_path / "opens.py").write_text("import os\ndef opens():\n    os.open('/dev/null', 0)\nopens()\n")
    config = "config = { unstable_dw_ustack = enable } "
    script = config + OPEN + "{ print((len(dw_ustack) > 5, len(ustack) > 0)); print(pystack(folded)); }"
    result = server.run(("-q", "-e", script, "-c", f"{PYTHONS[0].command[0]} {tmp_path}/opens.py"), timeout=60)
    assert result.stdout.splitlines()[:2] == ["(true, true)", "<module>;opens"]


@pytest.mark.parametrize("python", [python for python in PYTHONS if not python.free_threaded], ids=str)
def test_the_interpreter_that_runs(server: Server, python: Python, tmp_path: Path) -> None:
    """A thread has a state for each interpreter: that which runs counts, with the GIL and without."""
    (tmp_path / "inner.py").write_text(
        "import os\ndef leaf():\n    os.getpgid(0)\n    os.open('/dev/null', 0)\ndef inner():\n    leaf()\ninner()\n"
    )
    module = "_interpreters" if python.minor >= 13 else "_xxsubinterpreters"
    (tmp_path / "outer.py").write_text(
        f"import os, {module} as interpreters\n"
        "def leaf():\n    os.getpgid(0)\n    os.open('/dev/null', 0)\n"
        f"def outer():\n    text = open('{tmp_path}/inner.py').read()\n"
        "    interpreters.create()\n    interpreters.run_string(interpreters.create(), text)\n    leaf()\nouter()\n"
    )
    body = "{ print(pystack(folded)); }"
    script = f"{OPEN}{body} t:syscalls:sys_enter_getpgid /pid == cpid/ {body}"
    result = server.run(("-q", "-e", script, "-c", f"{python.command[0]} {tmp_path}/outer.py"), timeout=60)
    stacks = [line for line in result.stdout.splitlines() if line]
    assert stacks == [*["<module>;inner;leaf"] * 2, *["<module>;outer;leaf"] * 2], result


@pytest.mark.parametrize("python", [python for python in PYTHONS if python.minor >= 12], ids=str)
def test_through_the_trampolines_of_x_perf(server: Server, python: Python, tmp_path: Path) -> None:
    """``-X perf`` has a function in the machine's code for each of Python; with Python's frames none stands twice."""
    (tmp_path / "traced.py").write_text(
        "import os\ndef leaf():\n    os.open('/dev/null', 0)\n"
        "def middle():\n    leaf()\ndef top():\n    middle()\ntop()\n"
    )
    probe = OPEN + "{ print(ustack(folded)); @pid = pid; }"
    stacks = []
    for config in ("config = { stack_unwinding = auto } ", MIXED):
        command = " ".join([*python.command, "-X", "perf", f"{tmp_path}/traced.py"])
        result = server.run(("-q", "-e", config + probe, "-c", command), timeout=60)
        stack, _, rest = result.stdout.partition("\n")
        Path(f"/tmp/perf-{rest.split()[-1]}.map").unlink()
        stacks.append(stack.split(";"))
    native, joined = stacks
    names = ["<module>", "top", "middle", "leaf"]
    found = [name.removeprefix("py::").rpartition(":")[0] for name in native if name.endswith("/traced.py")]
    assert found == names, native
    assert "Py_BytesMain" in native, "the stack goes on to its root"
    assert [name for name in joined if name in names] == names, joined
    assert not any(name.startswith("py::") for name in joined), joined
    assert "Py_BytesMain" in joined
