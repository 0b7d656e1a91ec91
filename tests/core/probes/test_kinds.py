"""The probe table: names, and where a name may come from."""

from __future__ import annotations

import pytest

from pytrace.core.probes.kinds import PROBE_KINDS, known_kind, probe_kind


def test_names_are_case_insensitive_but_for_usdt_and_uprobe() -> None:
    for name, kind in (("KPROBE", "kprobe"), ("K", "kprobe"), ("u", "uprobe"), ("U", "usdt"), ("kfunc", "fentry")):
        found = probe_kind(name)
        assert found is not None
        assert found.name == kind
    assert probe_kind("nothing") is None


def test_names_of_the_table_itself() -> None:
    assert [known_kind(row.name) for row in PROBE_KINDS] == list(PROBE_KINDS)
    with pytest.raises(KeyError):
        known_kind("nothing")
