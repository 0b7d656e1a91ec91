"""The writer of the archive of modules: where the code comes from."""

from __future__ import annotations

import marshal
import os
import py_compile
from pathlib import Path

from pytrace.base import module_archive_writer


def test_code_comes_from_the_file_of_python_if_that_is_up_to_date(tmp_path: Path) -> None:
    source = tmp_path / "thing.py"
    source.write_text("VALUE = 1\n")
    made = py_compile.compile(str(source), doraise=True)
    marked = Path(made).read_bytes()[:16] + marshal.dumps(compile("VALUE = 'from the file'", "thing.py", "exec"))
    Path(made).write_bytes(marked)
    scope: dict[str, object] = {}
    exec(marshal.loads(module_archive_writer._code("thing", str(source), source.stat())), scope)
    assert scope["VALUE"] == "from the file"
    source.write_text("VALUE = 20\n")
    os.utime(source, (1, 1))
    exec(marshal.loads(module_archive_writer._code("thing", str(source), source.stat())), scope)
    assert scope["VALUE"] == 20


def test_code_of_a_file_that_was_never_compiled(tmp_path: Path) -> None:
    source = tmp_path / "thing.py"
    source.write_text("VALUE = 3\n")
    scope: dict[str, object] = {}
    exec(marshal.loads(module_archive_writer._code("thing", str(source), source.stat())), scope)
    assert scope["VALUE"] == 3
