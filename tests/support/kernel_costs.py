"""What this kernel's verifier counts of the scripts of :mod:`tests.support.costs`; what a start from the cache does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.load import loader
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.costs import GETSID, SCRIPTS, Costs
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parent.parent.parent
STARTS = {
    "begin": "begin { exit(); }",
    "map and printf": 'begin { @a[1] = count(); @h = hist(5); printf("%d %s\\n", 40 + 2, "x"); exit(); }',
    "probe": "tracepoint:syscalls:sys_enter_getsid { @[comm] = count(); } begin { exit(); }",
}
"""Scripts that end by themselves at once: how often a longer run waits depends on the machine's speed."""
UNWOUND = {"unwound stack": f"config = {{ stack_unwinding = auto; }} {GETSID} {{ @[ustack(64)] = count(); }}"}
"""Compiled otherwise on a machine without the kernel's types, and so verified only."""
OF_A_RUN = 0.01
"""Of instructions that the verifier processes."""
TOLERANCE = 0.05
"""Of system calls: a longer path of the checkout has more folders to look at."""


def verifier() -> str:
    """The part of the record of this kernel's verifier."""
    return f"verified by Linux {os.uname().release}"


def starter() -> str:
    """The part of the record of this Python on this kernel."""
    return f"started by Python {'.'.join(map(str, sys.version_info[:3]))} on Linux {os.uname().release}"


def of_all_programs() -> dict[str, Costs]:
    """What the verifier says of each script that this kernel can load."""
    return {name: verified(text) for name, text in (SCRIPTS | UNWOUND).items() if "/bin/app" not in text}


def verified(text: str) -> Costs:
    """Instructions that the verifier processed until all programs were accepted."""
    script = pipeline.compile_script(Source("stdin", text), CompileOptions(), LiveKernel(), Diagnostics())
    logs: dict[str, str] = {}
    options = loader.LoadOptions(verifier_log=logs.__setitem__)
    with ExitStack() as stack:
        loader.load(script, options=options, stack=stack)
    processed = sum(int(number) for log in logs.values() for number in re.findall(r"processed (\d+) insns", log))
    return {"processed": processed}


def of_all_starts() -> dict[str, Costs]:
    """What a start from the cache imports and asks of the kernel, for each script."""
    with tempfile.TemporaryDirectory() as cache:
        return {name: started(text, Path(cache)) for name, text in STARTS.items()}


_CHILD = """
import os, sys
before = set(sys.modules)
with open(sys.argv[1]) as file:
    script = file.read()
if len(sys.argv) > 2:
    def tell(status, path=sys.argv[2], leave=os._exit):
        open(path, "w").write(str(len(sys.modules.keys() - before)))
        leave(status)
    os._exit = tell
sys.argv = ["pytrace", "-e", script]
os.getsid(0)
from pytrace.cli.entry import command
command()
"""
"""getsid() marks where Python has started and pytrace begins."""

_COUNT = """
tracepoint:syscalls:sys_enter_getsid /pid == cpid/ { @begun = 1; }
tracepoint:raw_syscalls:sys_enter /pid == cpid && @begun/ { @calls = count(); }
"""


def started(text: str, cache: Path) -> Costs:
    """Modules and system calls of a start from the cache."""
    child, script, report = cache / "child.py", cache / "script", cache / "modules"
    child.write_text(_CHILD)
    script.write_text(text)
    for _ in range(2):  # compiles; is what further starts are like
        _run(cache, sys.executable, str(child), str(script), str(report))
    done = _run(
        cache, sys.executable, "-m", "pytrace", "-q", "--no-cache", "-e", _COUNT,
        "-c", f"{sys.executable} {child} {script}",
    )  # fmt: skip
    found = re.search(r"^@calls: (\d+)$", done, re.MULTILINE)
    assert found, done
    return {"modules": int(report.read_text()), "system calls": int(found[1])}


_OTHERWISE = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"})
"""With these the interpreter starts otherwise."""


def _run(cache: Path, *command: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in _OTHERWISE}
    done = subprocess.run(
        command, cwd=ROOT, env={**inherited, "XDG_CACHE_HOME": str(cache)},
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    return done.stdout
