"""Layouts of CPython's structures by minor version, from the headers of each (``scripts/generate-python-layouts``).

Those of 3.13 and later are the headers of free-threaded builds, too, which differ by a macro of the configuration.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pytrace.runtime.stacks.python_interpreters import PUBLISHED_SINCE

FREE_THREADED = "-DPy_GIL_DISABLED=1"
PROGRAM = Path(__file__).with_name("python_layout.c")


def layouts(headers: str) -> list[dict[str, int]]:
    """The layouts by headers in a folder (``/usr/include/python3.11``)."""
    ordinary = layout(headers)
    return [ordinary, layout(headers, FREE_THREADED)] if ordinary["minor"] >= PUBLISHED_SINCE else [ordinary]


def layout(headers: str, *options: str) -> dict[str, int]:
    """The layout by headers in a folder, compiled with some options."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/layout"
        # Debian's pyconfig.h is a folder above, by architecture.
        folders = [f"-I{headers}", f"-I{headers}/internal", f"-I{Path(headers).parent}"]
        subprocess.run(["cc", "-w", *options, *folders, str(PROGRAM), "-o", program], check=True)
        text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    result: dict[str, int] = json.loads(text)
    return result


def merged(old: str, headers: Iterable[str]) -> str:
    """The file's text, with the layouts of *headers* in place of those that it has."""
    known = json.loads(old) + [row for folder in headers for row in layouts(folder)]
    rows = {(row["minor"], row.get("free_threaded", 0)): row for row in known}
    return "[\n" + ",\n".join(json.dumps(rows[build]) for build in sorted(rows)) + "\n]\n"
