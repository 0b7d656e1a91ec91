"""CPython interpreters of this machine, one for each minor version, way of linking, kind of threads and of loop."""

from __future__ import annotations

import glob
import json
import os
import subprocess
from functools import cache

import msgspec

_ASK = (
    "import sys, sysconfig; names = 'Py_ENABLE_SHARED', 'Py_GIL_DISABLED'\n"
    "tails = '--with-tail-call-interp' in (sysconfig.get_config_var('CONFIG_ARGS') or '')\n"
    "print(sys.version_info[1], *(sysconfig.get_config_var(name) or 0 for name in names), int(tails))"
)
PATTERNS = (
    "/usr/bin/python3.*[0-9]",
    "/usr/local/bin/python3.*[0-9]",
    os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"),
)
SUPPORTED = range(9, 16)


class Python(msgspec.Struct, frozen=True):
    """An interpreter: the command that starts it, its minor version, whether it is a libpython, free-threaded, and one
    whose handlers of instructions are functions.
    """

    command: tuple[str, ...]
    minor: int
    shared: bool
    free_threaded: bool
    tail_calls: bool

    def __str__(self) -> str:
        kinds = f"{'-shared' if self.shared else ''}{'-tail' if self.tail_calls else ''}"
        return f"3.{self.minor}{'t' if self.free_threaded else ''}{kinds}"


@cache
def _found() -> tuple[Python, ...]:
    """Also those of the environment's TEST_PYTHONS, a JSON list of commands."""
    commands = [(path,) for pattern in PATTERNS for path in sorted(glob.glob(pattern)) if os.access(path, os.X_OK)]
    commands += [tuple(command) for command in json.loads(os.environ.get("TEST_PYTHONS", "[]"))]
    known: dict[tuple[int, bool, bool, bool], Python] = {}
    for command in commands:
        answer = subprocess.run([*command, "-c", _ASK], capture_output=True, text=True)
        if answer.returncode == 0:
            minor, *kinds = map(int, answer.stdout.split())
            shared, free_threaded, tails = map(bool, kinds)
            build = minor, shared, free_threaded, tails
            if minor in SUPPORTED:
                known.setdefault(build, Python(command, *build))
    return tuple(known[key] for key in sorted(known))


PYTHONS = _found()
