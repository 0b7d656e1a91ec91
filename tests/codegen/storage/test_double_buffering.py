"""Which maps are double-buffered."""

from __future__ import annotations

import pytest

from pytrace.codegen.storage.double_buffering import emptied, snapshots
from tests.support.front import analyse


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("@m[1] = 1; print(@m);", set()),
        ("@m[1] = 1; clear(@m);", set()),
        ("@m[1] = 1; print(@m); clear(@m);", {"@m"}),
        ("@m[1] = 1; print_clear(@m);", {"@m"}),
        ("@m[1] = count(); print(@m); clear(@m);", {"@m"}),
        ("@s = 1; clear(@s);", {"@s"}),
        ("@s = 1; zero(@s);", {"@s"}),
        ("@s = 1; print(@s); clear(@s);", {"@s"}),
        ("@s = 1; print(@s);", set()),
        ("@c = count(); clear(@c);", set()),
        ("@c = count(); print(@c); clear(@c);", set()),
        ("@c = count(); $x = (int64)@c; clear(@c);", {"@c"}),
        ("@h = hist(1); clear(@h);", set()),
        ("@h = hist(1); quantiles(@h); clear(@h);", set()),
        ("@x = max(1); clear(@x);", {"@x"}),
        ("@a = 1; @b = count(); @b = count(); clear(@b); @a = (int64)@b;", {"@b"}),
        ("@m[1] = 1; print(@m); @m[2] = 2; clear(@m);", set()),
    ],
)
def test_names(body: str, names: set[str]) -> None:
    assert snapshots(analyse(f"begin {{ {body} }}").checked()) == names


def test_emptied_in_any_way() -> None:
    body = "@a[1] = 1; @b[1] = 1; @c[1] = 1; @d[1] = 1; @e = 1; print(@a); clear(@a); clear(@b); zero(@c); print(@d);"
    assert emptied(analyse(f"begin {{ {body} clear(@e); }}").checked()) >= {"@a", "@b", "@e"}
    assert "@d" not in emptied(analyse(f"begin {{ {body} clear(@e); }}").checked())
