"""python and pythonret: calls of Python functions, compared with those that the program itself notes."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.pythons import PYTHONS, Python
from tests.support.server import Running, Server

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

pytestmark = pytest.mark.usefixtures("started", "no_leaks")


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.run(("--version",))


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
    assert sum(map(len, noted.values())) > 2500
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
    script += 'pythonret:floats.py:f { @[pystr(retval, 3)] = count(); }'
    command = " ".join((*python.command, f"{tmp_path}/floats.py"))
    result = server.run(("-q", "-o", str(tmp_path / "out"), "-e", script, "-c", command), timeout=100)
    assert result.stderr.startswith("WARNING: 615 strings truncated (pythonret:floats.py:f 615)")
    rows = (tmp_path / "out").read_text().splitlines()
    expected = [*result.stdout.splitlines(), "<list> 0"]
    assert [row.replace("-nan", "nan") for row in rows if row and not row.startswith("@")] == expected
    assert "@[inf]: 1" in rows
    assert "@[-in]: 1" in rows


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
    programs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
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


def test_a_process_without_python(server: Server) -> None:
    result = server.run(("-q", "-e", "python:x:f { }", "-c", "/bin/true"))
    assert result.status == 1
    assert "runs no CPython that is known" in result.stderr
    assert "has ended, and executed none" in result.stderr
    script = "config = { missing_probes = warn } python:x:f { } begin { print(1); exit(); }"
    assert server.run(("-q", "-e", script, "-c", "/bin/true")).stdout.strip() == "1"
