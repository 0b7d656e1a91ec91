"""Programs in CPython: pystack, python and pythonret, compared with what the interpreter itself says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from pytrace.runtime.machine import procfs
from tests.support.pythons import PYTHONS, Python
from tests.support.server import Running, Server

pytestmark = pytest.mark.usefixtures("started", "no_leaks")

SHAPES = Path(__file__).resolve().parents[1] / "programs" / "python_stacks.py"
OPEN = 't:syscalls:sys_enter_openat /pid == cpid && str(args.filename) == "/dev/null"/ '
FRAME = re.compile(r"(?m)^ *(.*)\+\d+@(.*):(\d+)$")

MIXED = "config = { python_frames = true } "
CALLED_FROM_C = frozenset({"shape_sort", "shape_regular_expression", "shape_reduce"})
"""Methods whose callbacks C functions call."""

Stack = list[tuple[str, int]]


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.start()


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
    with subprocess.Popen([*PYTHONS[0].command, f"{tmp_path}/busy.py"], stdout=subprocess.PIPE, text=True) as program:
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


# ---------------------------------------------------------------------------------------------- python calls
# python and pythonret: calls of Python functions, compared with those that the program itself notes.


PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "python_calls.py"
PROBED = [
    python
    for python in PYTHONS
    if python.minor in range(11, 14 if python.free_threaded else 15) and not python.tail_calls
]
OTHERS = [python for python in PYTHONS if python not in PROBED]
BOTH = (
    'python:python_calls.py:*hape* { print((tid, ">", func, pystr(args.x, 100))); } '
    'pythonret:python_calls.py:*hape* { print((tid, "<", func, pystr(retval, 100))); }'
)

Calls = dict[int, list[list[str]]]


def traced(server: Server, command: str, output: Path) -> tuple[Calls, Calls]:
    """What a program notes and what its probes print, for each thread."""
    options = ("-q", "-f", "json", "-o", str(output), "-e", BOTH, "-c", command)
    result = server.run(options, timeout=200)
    assert result.stderr == ""
    noted = dict(json.loads(result.stdout.splitlines()[-1]))
    seen: Calls = defaultdict(list)
    for row in map(json.loads, output.read_text().splitlines()):
        if row["type"] == "value":
            seen[row["data"][0]].append(row["data"][1:])
    return noted, dict(seen)


TOOLS = [
    (python, tool)
    for python in PROBED
    for tool, minors in (("", range(11, 15)), ("lines", (11, 14)), ("monitoring", range(12, 15)))
    if python.minor in minors
]


@pytest.mark.parametrize(("python", "tool"), TOOLS, ids=str)
def test_calls_are_those_of_the_program(server: Server, python: Python, tool: str, tmp_path: Path) -> None:
    """Every entry, every end with its value, in order; also beside debuggers and other tools."""
    command = " ".join([*python.command, str(PROGRAM), "20" if not tool else "2", tool])
    noted, seen = traced(server, command, tmp_path / "output")
    assert sum(map(len, noted.values())) > (400 if tool else 2500)
    assert seen == noted


MODULES = """
import importlib, json, os, sys
sys.path.insert(0, os.path.dirname(__file__))
late = "def f(n):\\n    return -n\\nclass C:\\n    def f(self, n):\\n        return n\\n"
open(os.path.dirname(__file__) + "/late.py", "w").write(late)
os.makedirs(os.path.dirname(__file__) + "/pack/sub", exist_ok=True)
for name in ("__init__", "sub/__init__", "sub/mod"):
    open(f"{os.path.dirname(__file__)}/pack/{name}.py", "w").write("def f(n):\\n    return n * 2\\n")
import late, pack.sub.mod
def f(n):
    return n
for number in range(1000):
    f(number); late.f(number); late.C().f(number); pack.f(number); pack.sub.mod.f(number)
json.loads("[1]")
"""


@pytest.mark.parametrize("python", PROBED[-1:], ids=str)
def test_files_modules_and_code_that_is_imported_later(server: Server, python: Python, tmp_path: Path) -> None:
    (tmp_path / "modules.py").write_text(MODULES)
    points = ["late:f", "late.py:C.f", f"{tmp_path}/late.py:*f", "pack:f", "pack.sub.mod:f", "pack.*:f", "json:loads",
              "modules.py:f", "*:C.f", "*/sub/*:f", "modules.py:g"]  # fmt: skip
    body = "{{ @[{}] = sum(1 + pyint(args.n)); }}"
    script = " ".join(f"python:{point} {body.format(number)}" for number, point in enumerate(points))
    command = " ".join([*python.command, f"{tmp_path}/modules.py"])
    result = server.run(("-q", "-f", "json", "-e", script, "-c", command), timeout=100)
    total = sum(range(1001))
    sums = next(json.loads(line) for line in result.stdout.splitlines() if "map" in line)["data"]["@"]
    assert {int(key): value for key, value in sums.items()} == {
        0: total, 1: total, 2: 2 * total, 3: total, 4: total, 5: 2 * total, 6: 1, 7: total, 8: total, 9: total,
    }  # fmt: skip


FLOATS = """
import random, struct
class Price(float):
    pass
def f(x):
    return x
ends = [float(text) for text in "0 -0 1e22 1e23 1e16 9999999999999998 1e-4 1e-5 1.2345e-300 inf -inf nan".split()]
ends += [5e-324, 2.0 ** -1022, -1.7976931348623157e308, 2.0 ** 53, 0.1, 100.0, Price(2.5), -1 / 3]
patterns = random.Random(7)
ends += [struct.unpack("=d", patterns.randbytes(8))[0] for _ in range(300)]
ends += [round(patterns.uniform(-1e6, 1e6), patterns.randrange(7)) for _ in range(300)]
for x in ends:
    f(x)
    print(repr(float(x)), f"{float(x):.17g}".replace("-nan", "nan"))
f([])
"""


@pytest.mark.parametrize("python", PROBED, ids=str)
def test_floats(server: Server, python: Python, tmp_path: Path) -> None:
    """Their text is the one that Python prints, their value all bits; subclasses are floats, other objects are not."""
    (tmp_path / "floats.py").write_text(FLOATS)
    script = 'python:floats.py:f { printf("%s %.17g\\n", pystr(args.x), pyfloat(args.x)); } '
    script += "pythonret:floats.py:f { @[pystr(retval, 3)] = count(); }"
    command = " ".join((*python.command, f"{tmp_path}/floats.py"))
    result = server.run(("-q", "-o", str(tmp_path / "out"), "-e", script, "-c", command), timeout=100)
    assert result.stderr.startswith("WARNING: 615 strings truncated (pythonret:floats.py:f 615)")
    rows = (tmp_path / "out").read_text().splitlines()
    expected = [*result.stdout.splitlines(), "<list> 0"]
    assert [row.replace("-nan", "nan") for row in rows if row and not row.startswith("@")] == expected
    assert "@[inf]: 1" in rows
    assert "@[-in]: 1" in rows


INTEGERS = (0, 7, -7, 123456, -123456, (1 << 64) - 1, -(1 << 63))


@pytest.mark.parametrize("python", PROBED[-1:], ids=str)
def test_integers_in_short_strings(server: Server, python: Python, tmp_path: Path) -> None:
    (tmp_path / "integers.py").write_text(f"def f(x): return x\nfor x in (*{INTEGERS}, True): f(x)\n")
    script = 'python:integers.py:f { printf("%s|%s|%s\\n", pystr(args.x, 1), pystr(args.x, 3), pystr(args.x, 30)); }'
    command = " ".join((*python.command, f"{tmp_path}/integers.py"))
    result = server.run(("-q", "-e", script, "-c", command), timeout=100)
    texts = [*map(str, INTEGERS), "True"]
    assert result.stdout.split() == [f"{text[:1]}|{text[:3]}|{text}" for text in texts]
    shortened = sum(len(text) > size for text in texts for size in (1, 3))
    assert result.stderr.startswith(f"WARNING: {shortened} strings truncated")


RUNNING = """
import sys
def f(n):
    return {"n": n}
print("on", flush=True)
while sys.stdin.readline():
    f(3)
    print("done", flush=True)
"""


@pytest.mark.parametrize("python", PROBED[-1:], ids=str)
def test_a_process_that_runs_and_no_other(server: Server, python: Python, tmp_path: Path) -> None:
    """Another process with the same interpreter and program stays as it is: its code has no breakpoint."""
    (tmp_path / "running.py").write_text(RUNNING)
    command = [*python.command, f"{tmp_path}/running.py"]
    programs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    script = 'python:running.py:f { printf("%d %d <%s>\\n", pid, pyint(args.n), pystr(args.none)); } '
    script += "pythonret:running.py:f { print(pystr(retval)); exit(); }"

    def call(_run: Running) -> None:
        for program in programs[::-1]:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write("go\n")
            program.stdin.flush()
            assert program.stdout.readline() == "done\n"

    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "on\n"
        result = server.run(("-p", str(programs[0].pid), "-e", script), timeout=60, while_attached=call)
        assert result.stderr == "Attached 2 probes\n"
        assert result.stdout.splitlines()[:2] == [f"{programs[0].pid} 3 <>", "<dict>"]
    finally:
        for program in programs:
            program.kill()
            program.communicate()


@pytest.mark.skipif(not OTHERS, reason="all versions of this machine can be probed")
def test_versions_that_cannot_be_probed(server: Server, tmp_path: Path) -> None:
    for python in OTHERS:
        result = server.run(("-q", "-e", "python:x:f { }", "-c", f"{' '.join(python.command)} -c 1"))
        assert result.status == 1
        message = f"functions of CPython 3.{python.minor} cannot be probed (those of 3.11 to 3.14 can)"
        if python.minor == 14:
            kind = "free-threaded builds since CPython 3.14" if python.free_threaded else "builds with the tail-calling"
            message = f"functions of {kind}"
        assert message in result.stderr


@pytest.mark.parametrize("python", PROBED[-1:], ids=str)
def test_an_interpreter_that_wrappers_execute(server: Server, python: Python, tmp_path: Path) -> None:
    """As the shim of a version manager, which is a script and looks for the version by other programs."""
    (tmp_path / "called.py").write_text("def f(n):\n    return n\nfor number in range(5):\n    f(number)\n")
    shim = tmp_path / "shim"
    shim.write_text(f'#!/bin/sh\nversion=$(env true)\nexec env {" ".join(python.command)} "$@"\n')
    shim.chmod(0o755)
    script = "python:called.py:f { @ = sum(1 + pyint(args.n)); }"
    result = server.run(("-q", "-e", script, "-c", f"env {shim} {tmp_path}/called.py"))
    assert (result.status, result.stdout.strip()) == (0, "@: 15"), result.stderr


STARTED = """
import os, sys, time
def f(n):
    return n
for number in range(5):
    f("first" if sys.argv[1:] else "early")
while sys.argv[1:] and not os.path.exists(sys.argv[1]):
    f("later")
    time.sleep(0.01)
"""


@pytest.mark.parametrize("python", PROBED[-1:], ids=str)
def test_an_interpreter_that_the_command_starts(server: Server, python: Python, tmp_path: Path) -> None:
    """As a script of a shell, or make: with --follow its calls are seen from the first one, and those of a second.

    What that calls before its interpreter was found is counted as lost.
    """
    (tmp_path / "called.py").write_text(STARTED)
    script, seen = tmp_path / "run.sh", tmp_path / "seen"
    command = f'{" ".join(python.command)} {tmp_path}/called.py'
    script.write_text(f"#!/bin/sh\nsleep 0\n{command}\n{command} {seen}\nexit 3\n")
    script.chmod(0o755)
    program = "python:called.py:f { @[pystr(args.n)] = count(); printf(\"%s\\n\", pystr(args.n)); }"

    def end_when_seen(running: Running) -> None:
        running.until_printed("later", seconds=30)
        seen.touch()

    words = ("--follow", "--exit-status", "-e", program, "-c", str(script))
    result = server.run(words, while_attached=end_when_seen, timeout=60)
    assert result.status == 3, result.stderr
    assert result.stdout.count("early\n") == 5
    assert "@[early]: 5\n" in result.stdout
    assert "Python in processes too new to be known" in result.stderr or result.stdout.count("first\n") == 5
    result = server.run(("-q", "-e", program, "-c", str(script)))
    assert result.status == 1
    assert "--follow also traces an interpreter that the command starts as another process" in result.stderr


def test_calls_of_a_process_without_python(server: Server) -> None:
    result = server.run(("-q", "-e", "python:x:f { }", "-c", "/bin/true"))
    assert result.status == 1
    assert "runs no CPython that is known" in result.stderr
    assert "has ended, and executed none" in result.stderr
    assert "--follow also traces an interpreter" in result.stderr
    result = server.run(("-q", "--follow", "-e", "python:x:f { }", "-c", "sh -c '/bin/true; /bin/true'"))
    assert result.status == 1
    assert "has ended, and executed none" in result.stderr
    assert "--follow also" not in result.stderr
    script = "config = { missing_probes = warn } python:x:f { } begin { print(1); exit(); }"
    assert server.run(("-q", "-e", script, "-c", "/bin/true")).stdout.strip() == "1"


# ---------------------------------------------------------------------------------------------- python places
# Where interpreters of CPython are: virtual environments, programs that embed one, other file systems and pids.


SCRIPT = """config = { python_frames = true; show_debug_info = false }
t:syscalls:sys_enter_openat /str(args.filename) == "/dev/null"/ {
    print(pystack(folded)); print(ustack(folded)); exit();
}"""
SERVICE = """
import os, sys, time
def key(value):
    os.close(os.open("/dev/null", os.O_RDONLY))
def serve():
    while True:
        sorted([1], key=key)
        time.sleep(0.01)
os.write(1, b"serves\\n")
serve()
"""
EMBEDDED = """
#include <Python.h>
int main(int count, char **words) {
    Py_Initialize();
    FILE *file = fopen(words[1], "r");
    return count != 2 || file == NULL ? 1 : PyRun_SimpleFile(file, words[1]);
}
"""
_ASK = """
import json, sysconfig
names = ("INCLUDEPY", "LIBDIR", "LIBPL", "LDVERSION", "LIBS", "SYSLIBS", "prefix", "LINKFORSHARED")
print(json.dumps({name: sysconfig.get_config_var(name) for name in names}))
"""


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A program that opens a file in a callback of C."""
    path = tmp_path / "service.py"
    path.write_text(SERVICE)
    return path


def check(server: Server, *command: str | Path, inside: bool = False, **variables: str) -> None:
    """Python's stack, and C functions between its frames in the mixed one; *inside*: of the command's child."""
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"serves\n"
            pid = procfs.children(program.pid)[0] if inside else program.pid
            result = server.run(("-q", "-p", str(pid), "-e", SCRIPT), timeout=60)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
    assert "no Python stacks" not in result.stderr
    python, mixed = result.stdout.split()
    assert python == "<module>;serve;key"
    frames = mixed.split(";")
    assert [name for name in frames if name in {"<module>", "serve", "key"}] == ["<module>", "serve", "key"]
    assert frames.index("key") - frames.index("serve") > 1, "the sort is between them"
    assert frames.index("<module>") > 3, "the program is below them"


@pytest.mark.parametrize("python", PYTHONS[:1], ids=str)
def test_virtual_environment(server: Server, python: Python, service: Path) -> None:
    folder = service.parent / "venv"
    subprocess.run([*python.command, "-m", "venv", "--without-pip", str(folder)], check=True)
    check(server, folder / "bin" / "python", service)


def _embedding(python: Python, folder: Path, *, static: bool) -> tuple[str, str] | None:
    """A program that embeds an interpreter, and its prefix; None where what it needs is not installed."""
    answer = subprocess.run([*python.command, "-c", _ASK], check=True, capture_output=True, text=True).stdout
    known = json.loads(answer)
    library = f"libpython{known['LDVERSION']}"
    name = f"{known['LIBPL']}/{library}.a" if static else f"{known['LIBDIR']}/{library}.so"
    if not os.path.exists(f"{known['INCLUDEPY']}/Python.h") or not os.path.exists(name):
        return None
    (folder / "service.c").write_text(EMBEDDED)
    libraries = f"{known['LIBS']} {known['SYSLIBS']} {known['LINKFORSHARED'] if static else ''} -lm -lz -lexpat"
    words = [f"-I{known['INCLUDEPY']}", str(folder / "service.c"), name, f"-Wl,-rpath,{known['LIBDIR']}"]
    words += ["-no-pie", *libraries.split()] if static else []
    subprocess.run(["cc", "-w", "-o", str(folder / "embedding"), *words], check=True)
    return str(folder / "embedding"), known["prefix"]


@pytest.mark.parametrize("python", [item for item in PYTHONS if item.minor in {11, 13}], ids=str)
@pytest.mark.parametrize("static", [False, True], ids=["libpython", "static"])
def test_a_program_that_embeds_it(server: Server, python: Python, static: bool, service: Path) -> None:
    built = _embedding(python, service.parent, static=static)
    if built is None:
        pytest.skip("no development files of this interpreter")
    program, prefix = built
    check(server, program, service, PYTHONHOME=prefix)


NAMESPACES = """
mount -t tmpfs none "$1"
for folder in usr lib lib64 dev proc etc root; do
    if [ -e "/$folder" ]; then mkdir "$1/$folder" && mount --rbind "/$folder" "$1/$folder"; fi
done
mkdir -p "$1/srv/app"
cp "$2" "$1/srv/app/service.py"
cp "$3" "$1/srv/app/interpreter"
exec chroot "$1" /usr/bin/env PYTHONHOME="$4" /srv/app/interpreter /srv/app/service.py
"""


@pytest.mark.parametrize("python", PYTHONS[:1], ids=str)
def test_another_file_system_and_other_pids(server: Server, python: Python, service: Path) -> None:
    """The interpreter is a file that only the process sees, and the process has other numbers for itself."""
    ask = "import os, sys; print(os.path.realpath(sys.executable), sys.base_prefix)"
    answer = subprocess.run([*python.command, "-c", ask], check=True, capture_output=True, text=True).stdout
    interpreter, prefix = answer.split()
    root, script = service.parent / "root", service.parent / "enter.sh"
    root.mkdir()
    script.write_text(NAMESPACES)
    apart = ("unshare", "--mount", "--pid", "--fork", "/bin/sh", "-e")
    check(server, *apart, script, root, service, interpreter, prefix, inside=True)
