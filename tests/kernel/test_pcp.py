"""What the module ``bpftrace`` of Performance Co-Pilot does with a tracer, done with pytrace.

It asks for the version and the probes, writes a script to standard input with a probe that prints all maps each second,
reads JSON lines of five types, and ends the run by SIGINT.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import patience
from tests.support.saved import ROOT
from tests.support.scraped import Caller

PROBE = "tracepoint:syscalls:sys_enter_getppid"


@pytest.fixture
def tracer(tmp_path: Path) -> str:
    """The command under the name by which the module knows it."""
    path = tmp_path / "bpftrace"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from pytrace.cli.entry import command\ncommand()\n"
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.close()


def answer(tracer: str, option: str) -> str:
    done = subprocess.run([tracer, option], capture_output=True, text=True, timeout=patience(60), check=True)
    return done.stdout


def test_the_version_is_one_that_it_knows(tracer: str) -> None:
    text = answer(tracer, "--version").strip()
    # Older and newer modules: the whole text, and what follows the first blank.
    for pattern, part in ((r"bpftrace v(\d+)\.(\d+)\.(\d+)", text), (r"v(\d+)\.(\d+)\.(\d+)", text.partition(" ")[2])):
        found = re.match(pattern, part)
        assert found is not None
        assert tuple(map(int, found.groups())) >= (0, 11, 0), "it would give the script by -e"


def test_probes_are_one_word_each(tracer: str) -> None:
    lines = answer(tracer, "-l").splitlines()
    assert PROBE in lines
    # It separates them by blanks, and joins them by commas.
    assert [line for line in lines if len(line.split()) != 1 or "," in line] == []


class Run:
    """A script as the module runs it."""

    def __init__(self, tracer: str, code: str, names: list[str]) -> None:
        self.data: dict[str, Any] = {}
        self.probes = 0
        self.process = subprocess.Popen(
            [tracer, "-f", "json", "-"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin is not None
        printing = " ".join(f"print({name});" for name in names)
        self.process.stdin.write(f"{code}\ninterval:s:1 {{ {printing} }}")
        self.process.stdin.close()
        self.process.stdin = None

    def line(self) -> bool:
        """Take in one line; False at the end of the output."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if text and not text.isspace():
            self._take(json.loads(text))
        return bool(text)

    def _take(self, item: dict[str, Any]) -> None:
        if item["type"] == "attached_probes":
            self.probes = item["data"]["probes"]
        elif item["type"] == "map":
            self.data.update(item["data"])
        elif item["type"] == "hist":
            for name, buckets in item["data"].items():
                self.data[name] = {f"{b.get('min', '-inf')}-{b.get('max', 'inf')}": b["count"] for b in buckets}
        elif item["type"] in ("printf", "time"):
            self.data["@output"] = self.data.get("@output", "") + item["data"]

    def until_there(self, *names: str) -> None:
        """Until it has seen these."""
        while not set(names) <= set(self.data):
            assert self.line(), self.process.communicate()[1]

    def stop(self) -> tuple[int, str]:
        """As the module stops a script; gives status and messages."""
        self.process.send_signal(signal.SIGINT)
        return self.over()

    def over(self) -> tuple[int, str]:
        while self.line():
            pass
        return self.process.wait(patience(30)), self.process.communicate()[1]


def test_values_of_all_kinds(tracer: str, caller: Caller) -> None:
    here = f"/pid == {caller.pid}/"
    code = f"""// name: all_kinds
{PROBE} {here} {{
  @n++; @calls = count(); @by[comm] = count(); @two[comm, @n % 2] = count(); @sum[comm] = sum(2);
  @size = hist(@n); @linear = lhist(@n, 2, 6, 2); @stack[kstack] = count(); @text[1] = "x\\"y\\n";
}}
BEGIN {{ printf("a,b\\n"); }}
interval:ms:100 {{ printf("%d,%d\\n", 1, 2); }}"""
    names = ["@n", "@calls", "@by", "@two", "@sum", "@size", "@linear", "@stack", "@text"]
    run = Run(tracer, code, names)
    run.until_there("@output")
    assert run.probes == 4
    caller.call(8)
    run.until_there(*names)
    data = run.data
    assert (data["@n"], data["@calls"], data["@by"], data["@sum"]) == (8, 8, {"python3": 8}, {"python3": 16})
    assert data["@two"] == {"python3,0": 4, "python3,1": 4}
    assert data["@size"] == {"1-1": 1, "2-3": 2, "4-7": 4, "8-15": 1}
    assert data["@linear"] == {"-inf-1": 1, "2-3": 2, "4-5": 2, "6-inf": 3}
    assert data["@text"] == {"1": 'x"y\n'}
    (stack,) = data["@stack"]
    assert re.match(r"\n\w+", stack)
    assert data["@output"].startswith("a,b\n1,2\n")
    assert run.stop() == (0, "")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (f"{PROBE} {{ @x = cont(); }}", "ERROR: unknown function 'cont'"),
        ("tracepoint:no:such { @x = count(); }", "ERROR: "),
        (f"{PROBE} {{ @x = count(;", "ERROR: "),
    ],
)
def test_a_script_that_is_wrong_says_so_on_standard_error(tracer: str, code: str, message: str) -> None:
    run = Run(tracer, code, ["@x"])
    status, err = run.over()
    assert status == 1
    assert message in err
    assert run.data == {}


def test_a_script_that_ends_itself(tracer: str) -> None:
    run = Run(tracer, "interval:ms:10 { @x = 1; exit(); }", ["@x"])
    assert run.over() == (0, "")
    assert run.data["@x"] == 1
