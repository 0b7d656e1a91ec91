"""Pages for users of bpftrace and bcc, and settings: what they name exists, commands load, the program runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.cli import tools
from pytrace.cli.options import OPTIONS
from pytrace.frontend.expand.settings import KEYS, OTHER_VARIABLES
from tests.support import machine
from tests.support.patience import patience
from tests.support.server import Server

DOCS = Path(__file__).resolve().parent.parent / "docs" / "start"
BPFTRACE = (DOCS / "from-bpftrace.md").read_text()
BCC = (DOCS / "from-bcc.md").read_text()
SETTINGS = (DOCS.parent / "reference" / "settings.md").read_text()
_COMMAND = re.compile(r"(?:^<!-- needs: (?P<needs>\w+) -->\n)?^```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(page: str, title: str) -> str:
    """The text under a heading, up to the next one of the same level."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of a section's tables, without headings."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return lines[1:]


def test_options_of_bpftrace_are_ours() -> None:
    known = {f"-{row.short}" for row in OPTIONS if row.short} | {f"--{row.long}" for row in OPTIONS if row.long}
    named = re.findall(r"(?<![\w-])--?[a-zA-Z][a-zA-Z-]*", section(BPFTRACE, "Options"))
    assert {name for name in named if name not in known} == {"-lv", "-kk"}
    assert {*named} >= {f"-{letter}" for letter in "BcdefhIklopqVvb"}


def test_every_key_of_the_configuration_is_told() -> None:
    named = {name for row in rows(section(SETTINGS, "Keys")) for name in re.findall(r"`(\w+)`", row[0])}
    assert {row.name for row in KEYS} <= named


def test_every_variable_is_told() -> None:
    named = set(re.findall(r"`PYTRACE_(\w+)`", section(SETTINGS, "Variables of the environment")))
    inner = {"TRACEBACK", "VENV", "VM_WAIT"}
    assert named == (OTHER_VARIABLES - inner) | {"MAX_STRLEN"}


def test_no_tool_is_named_twice() -> None:
    names = re.findall(r"`([\w-]+)`", section(BCC, "Tools").split("### Another name")[0].split("### The same name")[1])
    assert len(names) == len(set(names)) > 60


COMMANDS = [(match["needs"] or "", match["text"]) for match in _COMMAND.finditer(BCC)]


def lacking(script: str) -> str:
    """A tracepoint of *script* that this kernel was built without; empty when it has all."""
    for category, event in re.findall(r"\bt:(\w+):(\w+)", script):
        if not Path(f"/sys/kernel/tracing/events/{category}/{event}").exists():
            return f"{category}:{event}"
    return ""


@pytest.mark.kernel
@pytest.mark.parametrize(("needs", "text"), COMMANDS, ids=[f"{number}" for number in range(len(COMMANDS))])
def test_line_instead_of_a_tool(needs: str, text: str, server: Server, tmp_path: Path) -> None:
    if needs:
        machine.need(needs)
    if lacking(text):
        pytest.skip(f"this kernel has no tracepoint {lacking(text)}")
    words = shlex.split(text)
    assert words[0] == "pytrace"
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    result = server.run(("-q", "--dry-run", *words[1:]), cwd=tmp_path, timeout=120, environment=environment)
    assert (result.status, result.stderr) == (0, ""), result


@pytest.mark.kernel
def test_the_python_program(tmp_path: Path) -> None:
    (text,) = _PROGRAM.findall(BCC)
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(60), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # A read that a signal interrupts has a negative result; one that the process waits with until it may execute the
    # command has its former name, and is seen where it begins late.
    reads = re.findall(r"^(.+) read (-?\d+) bytes$", done.stdout, re.MULTILINE)
    sizes = [int(size) for name, size in reads if name == "sha256sum"]
    (total,) = re.findall(r"^sha256sum (\d+) bytes in all$", done.stdout, re.MULTILINE)
    buckets = [int(count) for count in re.findall(r"^\[.* (\d+) \|", done.stdout, re.MULTILINE)]
    assert sizes
    assert sum(buckets) == len(reads) <= len(sizes) + 1, done.stdout
    assert int(total) >= Path("/bin/sh").stat().st_size
    # Where the clocks of two processors differ, a read may end before it began, and is not among the slow ones.
    if not re.search(r"^\(\.\.\., 0\)", done.stdout, re.MULTILINE):
        assert sum(sizes) == int(total), done.stdout


def test_tools_of_bcc_exist() -> None:
    section_ = section(BCC, "Tools").split("### A line instead")[0]
    same = section_.split("### Another name")[0].split("### The same name")[1]
    known = {*tools.names(), "kill", "pytrace"}
    named = re.findall(r"`([\w-]+)`", same)
    for row in rows(section_.split("### Another name")[1]):
        named += re.findall(r"`([a-z]\w+)(?: [^`]*)?`", row[1])
    assert not [name for name in named if name not in known]


def test_tools_of_bpftrace_exist() -> None:
    named = re.findall(r"`pytrace (?!\./)([a-z]\w+)[^`]*`", section(BPFTRACE, "Tools"))
    assert {"opensnoop", "sslsnoop", "fsdist", "biolatency"} <= {*named}
    known = tools.names()
    assert not [name for name in named if name not in known]
