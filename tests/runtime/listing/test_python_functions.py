"""Functions of a Python file, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.listing import probes
from pytrace.runtime.listing.python_functions import functions, parameters
from pytrace.runtime.live_kernel import LiveKernel

SOURCE = """
open("/no/such/folder/executed", "w")
def first(a, b=1, *rest, key, **others): return [n for n in (a, b)]
class Shop:
    async def buy(self, price):
        def inner(): return lambda: price
        return inner
def größe(): pass
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SOURCE)
    return str(tmp_path / "shop.py")


def test_names_and_parameters(source: str) -> None:
    assert functions(source, "*") == [
        "<module>", "first", "Shop", "Shop.buy", "Shop.buy.<locals>.inner", "Shop.buy.<locals>.inner.<locals>.<lambda>",
        "größe",
    ]  # fmt: skip
    assert functions(source, "Shop.b*y") == ["Shop.buy"]
    assert parameters(source, "first") == ["a", "b", "key", "rest", "others"]
    assert parameters(source, "other") == parameters("/no/file.py", "f") == []


def test_listing(source: str) -> None:
    kernel = LiveKernel()
    assert probes.listing(kernel, f"pythonret:{source}:f*", verbose=True).splitlines() == [
        f"pythonret:{source}:first", "    a", "    b", "    key", "    rest", "    others",
    ]  # fmt: skip
    assert probes.listing(kernel, f"py:{source}").splitlines()[0] == f"python:{source}:<module>"
    with pytest.raises(TraceError, match="listed by the file of their source"):
        probes.listing(kernel, "python:json:*")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        functions("/no/file.py", "*")
    for name, data in (("broken.py", b"def"), ("nul.py", b"\0"), ("latin.py", b"\xff")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TraceError, match="is no Python source"):
            functions(str(tmp_path / name), "*")
