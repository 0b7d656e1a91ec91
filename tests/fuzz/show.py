"""Shows what a target does with the input in a file: ``python -m tests.fuzz.show TARGET FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz import table
from tests.fuzz.target import attempt

if __name__ == "__main__":
    attempt(table.find(sys.argv[1]), Path(sys.argv[2]).read_bytes())
