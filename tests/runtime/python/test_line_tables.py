"""Lines of instructions, compared with those that interpreters themselves name."""

from __future__ import annotations

import json
import subprocess
import sys
from types import CodeType

import pytest

from pytrace.runtime.python import line_tables
from tests.support.pythons import PYTHONS, Python

SHAPES = '''
def first(a,
          b):
    """Text."""
    x = [
        value
        for value in (a, b)
        if value
    ]
    try:
        return x if a else (
            b)
    except ValueError as error:
        raise error from None
    finally:
        del x







def far():
    pass
''' + "\n" * 300 + '''
async def later():
    async with far() as a:
        await a; await a
    return lambda: 1
'''

DUMP = """
import sys, json, base64
def codes(code):
    yield code
    for one in code.co_consts:
        if hasattr(one, "co_code"):
            yield from codes(one)
rows = []
for path in sys.argv[1:]:
    code = compile(open(path).read(), path, "exec")
    for one in codes(code):
        lines = [None] * (len(one.co_code) // 2)
        if hasattr(one, "co_lines"):
            for start, end, line in one.co_lines():
                for index in range(start // 2, end // 2):
                    lines[index] = line
        else:
            import dis
            starts = dict(dis.findlinestarts(one))
            line = one.co_firstlineno
            for index in range(len(lines)):
                line = starts.get(2 * index, line)
                lines[index] = line
        table = one.co_linetable if hasattr(one, "co_linetable") else one.co_lnotab
        rows.append((one.co_firstlineno, base64.b64encode(table).decode(), lines))
print(json.dumps(rows))
"""


def test_lines_of_this_interpreter() -> None:
    code = compile(SHAPES, "shapes", "exec")
    found = 0
    for one in [code, *(item for item in code.co_consts if isinstance(item, CodeType))]:
        for start, end, line in one.co_lines():
            for index in range(start // 2, end // 2):
                if line is not None:
                    read = line_tables.line(sys.version_info.minor, one.co_linetable, one.co_firstlineno, index)
                    assert read == line
                    found += 1
    assert found > 100


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_lines_of_other_versions(python: Python, tmp_path: object) -> None:
    import base64

    path = f"{tmp_path}/shapes.py"
    with open(path, "w") as file:
        file.write(SHAPES)
    text = subprocess.run([*python.command, "-c", DUMP, path], check=True, capture_output=True, text=True).stdout
    for first, table, lines in json.loads(text):
        for index, line in enumerate(lines):
            read = line_tables.line(python.minor, base64.b64decode(table), first, index)
            assert read == (first if line is None else line), (first, index)


@pytest.mark.parametrize("minor", [9, 10, 11, 14])
def test_a_table_that_is_cut_or_damaged_has_the_first_line_or_some_other(minor: int) -> None:
    assert line_tables.line(minor, b"", 7, 3) == 7
    assert line_tables.line(minor, b"\xff", 7, -1) == 7
    for damaged in (b"\xf7\xff\xff\xff", b"\x00" * 9, bytes(range(255))):
        assert isinstance(line_tables.line(minor, damaged, 7, 1 << 23), int)
