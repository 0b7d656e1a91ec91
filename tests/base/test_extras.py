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
