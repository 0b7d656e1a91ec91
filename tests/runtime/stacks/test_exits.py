"""Exits of functions that compilers made: parts, tables of jumps, functions that jump to others."""

from __future__ import annotations

import platform
from collections import Counter
from pathlib import Path

import pytest

from pytrace.core.instructions import FunctionExits
from pytrace.core.probe_kinds import Way
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.stacks import function_exits
from pytrace.runtime.stacks.function_exits import ExitFinder
from tests.support.compile import SOURCES, compiled, tool

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="code of x86-64")


@pytest.fixture(scope="module", params=["gcc", pytest.param("clang", marks=pytest.mark.needs("clang"))])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return compiled(folder, "program", SOURCES / "exits.c", "-O2", "-Wno-all", compiler=request.param)


class Exits:
    """The exits of the functions of a program."""

    def __init__(self, path: Path, names: Path | None = None) -> None:
        self._symbols = Binary.open(str(names or path))
        self._finder = ExitFinder(Binary.open(str(path)))

    def of(self, name: str) -> FunctionExits:
        (symbol,) = self._symbols.functions(name)
        return self._finder.exits(symbol.address, symbol.size)

    def ways(self, name: str) -> Counter[Way]:
        return Counter(item.way for item in self.of(name).exits)


def test_functions_that_compilers_make(program: Path) -> None:
    of_all = Exits(program)
    leaf = of_all.ways("leaf")[Way.RETURN]
    assert of_all.ways("leaf") == {Way.RETURN: leaf}
    for name, returns in (("tail", 0), ("chain", 0), ("maybe", 1)):
        ways = of_all.ways(name)
        assert (ways[Way.MARK], ways[Way.ELSEWHERE], ways[Way.RETURN]) == (1, leaf, returns), name
    assert {item.offset for item in of_all.of("chain").exits if item.way is Way.ELSEWHERE} == {
        item.offset for item in of_all.of("leaf").exits
    }
    reasons = {"pointer": "address it computes", "other_file": "another file", "through": "another file"}
    for name, reason in reasons.items():
        found = of_all.of(name)
        assert reason in found.problem
        assert [item.way for item in found.exits] == [Way.JUMP]
        assert not found.unwound
    assert of_all.of("never") == FunctionExits()
    for name in ("rare", "table", "main"):
        assert not of_all.of(name).problem, of_all.of(name)
        assert set(of_all.ways(name)) <= {Way.RETURN, Way.MARK, Way.ELSEWHERE}
    assert of_all.ways("table")[Way.RETURN]


def test_parts_without_symbols(program: Path, tmp_path: Path) -> None:
    """A stripped program has the same exits: where its functions and parts end, the unwind table says."""
    stripped = tmp_path / "stripped"
    tool("strip", "-o", stripped, program)
    with_symbols, without = Exits(program), Exits(stripped, program)
    for name in ("leaf", "tail", "chain", "maybe", "rare", "table", "pointer", "other_file"):
        assert set(without.of(name).exits) == set(with_symbols.of(name).exits), name


def test_limits(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit, function, reason in (
        ("MOST_CODE", 16, "table", "of code"),
        ("MOST_EXITS", 1, "maybe", "at most 1 are probed"),
        ("MOST_FUNCTIONS", 0, "tail", "more than 0 functions"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(function_exits, name, limit)
            assert reason in Exits(program).of(function).problem


def test_exceptions_pass_through_c_plus_plus(tmp_path: Path) -> None:
    text = 'extern "C" int f(int x) { try { if (x) throw x; } catch (int) { x = 2; } return x; } int main() { f(1); }'
    assert Exits(compiled(tmp_path, "thrower", text, "-O2", language="c++")).of("f").unwound
