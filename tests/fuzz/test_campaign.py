"""Inputs that a campaign collected are added to the kept corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import campaign

pytest.importorskip("atheris", reason="atheris has no wheel for this machine")


def test_inputs_that_reach_more_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy reaches no more than the first."""
    monkeypatch.setattr(campaign, "PLACE", tmp_path)
    monkeypatch.setattr(campaign, "CORPUS", tmp_path / "kept")
    collected = tmp_path / "map_file" / "corpus"
    collected.mkdir(parents=True)
    line, other = b"401000 10 work\n", b"no number\n"
    for name, data in {"one": line, "copy": line, "two": other}.items():
        (collected / name).write_bytes(data)
    assert campaign.keep("map_file") == 2
    assert {path.read_bytes() for path in (tmp_path / "kept/map_file").iterdir()} == {line, other}
