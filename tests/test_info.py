"""Tests of the report of ``--info``."""

from __future__ import annotations

import pytest

from pytrace import info
from pytrace.diagnostics import TraceError
from pytrace.runtime import features, libbpf


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(features, "has", lambda name: name != "kprobe")
    return info.report(frozenset({"fentry"}))


def test_every_feature_is_there_once(report: str) -> None:
    for name in features.FEATURES:
        assert report.count(f"  {name}: ") == 1, name


def test_sections_list_known_features_only() -> None:
    listed = [name for _, names in info._SECTIONS for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(features.FEATURES)


def test_answers(report: str) -> None:
    assert "  kprobe: no\n" in report
    assert "  fentry: switched off\n" in report
    assert "  uprobe: yes\n" in report


def test_the_build_is_told(report: str) -> None:
    assert "\nBuild\n  version: " in report
    assert "  llvmlite: " in report


def test_a_machine_without_libbpf(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise TraceError("libbpf.so.1 is not there")

    monkeypatch.setattr(libbpf, "version", missing)
    monkeypatch.setattr(features, "has", lambda name: False)
    assert "  libbpf: libbpf.so.1 is not there\n" in info.report()


@pytest.mark.parametrize(("machine", "answer"), [("x86_64", "yes"), ("aarch64", "no (x86-64 only)")])
def test_the_unwinder_knows_one_machine(monkeypatch: pytest.MonkeyPatch, machine: str, answer: str) -> None:
    monkeypatch.setattr(features, "has", lambda name: True)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert f"  DWARF unwinder: {answer}\n" in info.report()
