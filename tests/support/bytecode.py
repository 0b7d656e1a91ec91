"""Compiles what the tests import, before they run: ``python -m tests.support.bytecode``.

Test files are compiled as pytest does it, with assertions that show both sides, which takes 11 seconds of a processor
for all of them. Where there is no byte code yet every worker would do that at the same time, and so would the test
machine, which writes none and takes ten times as long.
"""

from __future__ import annotations

import ast
import compileall
import marshal
import os
from concurrent.futures import ProcessPoolExecutor
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

from _pytest.assertion.rewrite import PYC_TAIL, get_cache_dir, rewrite_asserts

ROOT = Path(__file__).resolve().parents[2]
REWRITTEN_TOO = (ROOT / "tests/frontend/checking.py",)
"""What tests/conftest.py has rewritten beside test files."""
_BY_HASH = b"\x03\0\0\0"
"""Flags of byte code that belongs to a source with a hash, which is looked at (PEP 552)."""


def is_rewritten(path: Path) -> bool:
    """Whether pytest rewrites the assertions of a file."""
    return path.name.startswith("test_") or path.name == "conftest.py" or path in REWRITTEN_TOO


def prepare(path: Path) -> None:
    """Write the byte code of a file of Python, if there is none of its present text."""
    if not is_rewritten(path):
        compileall.compile_file(path, quiet=2)
        return
    source = path.read_bytes()
    head = MAGIC_NUMBER + _BY_HASH + source_hash(source)
    target = get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"
    try:
        with target.open("rb") as file:
            if file.read(len(head)) == head:
                return
    except OSError:
        pass
    try:
        tree = ast.parse(source, str(path))
        rewrite_asserts(tree, source, str(path))
        code = compile(tree, str(path), "exec", dont_inherit=True)
        target.parent.mkdir(exist_ok=True)
        unfinished = target.with_name(f"{target.name}.{os.getpid()}")
        unfinished.write_bytes(head + marshal.dumps(code))
        unfinished.replace(target)
    except (OSError, SyntaxError):
        return  # pytest says what is wrong


def main() -> None:
    """Compile the package and the tests, on all processors, the longest files first."""
    files = [path for folder in ("pytrace", "tests") for path in (ROOT / folder).rglob("*.py")]
    files.sort(key=lambda path: -path.stat().st_size * (4 if is_rewritten(path) else 1))
    with ProcessPoolExecutor() as pool:
        list(pool.map(prepare, files, chunksize=4))


if __name__ == "__main__":
    main()
