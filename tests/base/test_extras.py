"""Hints about packages that are not installed."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from pytrace.base import extras

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name not in ("test", "dev")])
def test_the_packages_are_named(extra: str) -> None:
    hint = extras.hint(extra)
    assert hint.startswith(f"{sys.executable} -m pip install ")
    named = {item.partition(">")[0].lower() for item in EXTRAS[extra]}
    assert {word.strip("'").partition("<")[0].partition(">")[0].lower() for word in hint.split()[4:]} == named


def test_without_metadata_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert "'fleet'" in extras.hint("fleet")


def test_packages_that_a_light_installation_leaves_out_are_named() -> None:
    message, command = extras.left_out(ImportError(name="llvmlite.binding")) or ("", "")
    assert "no compiler" in message
    assert command == f"{sys.executable} -m pip install ply llvmlite"
    message, command = extras.left_out(ImportError(name="elftools")) or ("", "")
    assert message == "this needs the Python package pyelftools, which is not installed"
    assert extras.left_out(ImportError(name="pytrace.cli.main")) is None
    assert extras.left_out(ImportError()) is None


def test_debians_package_names_debians_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "__file__", "/usr/lib/python3/dist-packages/pytrace/base/extras.py")
    assert extras.hint("c") == "apt install python3-clang"
    assert "pipx" in extras.hint("lsp")
