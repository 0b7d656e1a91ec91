"""Layouts of CPython's structures by minor version, from the headers of each (``scripts/generate-python-layouts``)."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

PROGRAM = Path(__file__).with_name("python_layout.c")


def layout(headers: str) -> dict[str, int]:
    """The layout by headers in a folder (``/usr/include/python3.11``)."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/layout"
        # Debian's pyconfig.h is a folder above, by architecture.
        folders = [f"-I{headers}", f"-I{headers}/internal", f"-I{Path(headers).parent}"]
        subprocess.run(["cc", "-w", *folders, str(PROGRAM), "-o", program], check=True)
        text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    result: dict[str, int] = json.loads(text)
    return result


def merged(old: str, headers: Iterable[str]) -> str:
    """The file's text, with the layouts of *headers* in place of those that it has."""
    rows = {row["minor"]: row for row in json.loads(old)}
    rows |= {row["minor"]: row for row in map(layout, headers)}
    return "[\n" + ",\n".join(json.dumps(rows[minor]) for minor in sorted(rows)) + "\n]\n"
