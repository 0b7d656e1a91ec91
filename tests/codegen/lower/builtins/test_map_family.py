"""Functions on maps."""

from __future__ import annotations

import pytest

from tests.codegen.running import printed

VALUES = [
    ("@m[1] = 5; $f = find(@m, 1, $v); print(($f, $v));", (True, 5)),
    ("@m[1] = 5; $v = 9; $f = find(@m, 2, $v); print(($f, $v));", (False, 9)),
    ('@m[1] = "text"; $f = find(@m, 1, $v); print($v);', b"text"),
    ('@m[1] = (1, "a"); $f = find(@m, 1, $v); print($v);', (1, b"a")),
    ("@m[1] = sum(5); @m[1] = sum(6); $f = find(@m, 1, $v); print(($f, $v));", (True, 11)),
    ("@m[1] = 1; @m[2] = 2; print(len(@m));", 2),
    ('@m["a", 1] = count(); @m["a", 2] = count(); print(len(@m));', 2),
    ("@m[1] = count(); print((has_key(@m, 1), has_key(@m, 2)));", (True, False)),
    ("@m[1] = count(); print((delete(@m, 1), delete(@m, 1)));", (True, False)),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]
