"""CPython interpreters of this machine, one for each minor version and way of linking."""

from __future__ import annotations

import glob
import json
import os
import subprocess
from functools import cache

import msgspec

_ASK = "import sys, sysconfig; print(sys.version_info[1], sysconfig.get_config_var('Py_ENABLE_SHARED') or 0)"
PATTERNS = (
    "/usr/bin/python3.*[0-9]",
    "/usr/local/bin/python3.*[0-9]",
    os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"),
)
SUPPORTED = range(9, 16)


class Python(msgspec.Struct, frozen=True):
    """An interpreter: the command that starts it, its minor version, whether it is a libpython."""

    command: tuple[str, ...]
    minor: int
    shared: bool

    def __str__(self) -> str:
        return f"3.{self.minor}{'-shared' if self.shared else ''}"


@cache
def _found() -> tuple[Python, ...]:
    """Also those of the environment's TEST_PYTHONS, a JSON list of commands."""
    commands = [(path,) for pattern in PATTERNS for path in sorted(glob.glob(pattern)) if os.access(path, os.X_OK)]
    commands += [tuple(command) for command in json.loads(os.environ.get("TEST_PYTHONS", "[]"))]
    known: dict[tuple[int, bool], Python] = {}
    for command in commands:
        answer = subprocess.run([*command, "-c", _ASK], capture_output=True, text=True)
        if answer.returncode == 0:
            minor, shared = map(int, answer.stdout.split())
            if minor in SUPPORTED:
                known.setdefault((minor, bool(shared)), Python(command, minor, bool(shared)))
    return tuple(known[key] for key in sorted(known))


PYTHONS = _found()
