"""Tests of the report of ``--info``."""

from __future__ import annotations

import json
import os

import pytest

from pytrace.cli import info
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import libbpf, privileges
from pytrace.runtime.load import features


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(features, "has", lambda name: name != "kprobe")
    return info.report(frozenset({"fentry"}))


def test_every_feature_is_there_once(report: str) -> None:
    for name in features.FEATURES:
        assert report.count(f"  {name}: ") == 1, name


def test_it_begins_with_a_verdict(report: str) -> None:
    title, works, lacks, needs, _ = report.split("\n", 4)
    assert title == "What can be traced here"
    assert works.startswith("  works: tracepoints, functions of the kernel (kprobe), functions and USDT probes of ")
    assert lacks == "  does not work: the same with typed arguments (fentry)"
    assert needs.startswith("  what it takes: fentry: a kernel with CONFIG_DEBUG_INFO_BTF")


def test_nothing_works_without_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise TraceError("root is needed", hints=("sudo",))

    monkeypatch.setattr(features, "has", lambda _: True)
    monkeypatch.setattr(privileges, "check", refuse)
    _, works, _, needs, _ = info.report().split("\n", 4)
    assert works == "  works: no"
    assert needs.startswith("  what it takes: root is needed; sudo")


def test_sections_list_known_features_only() -> None:
    listed = [name for _, names in info._SECTIONS for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(features.FEATURES)


def test_answers(report: str) -> None:
    assert "  kprobe: no\n" in report
    assert "  fentry: switched off\n" in report
    assert "  uprobe: yes\n" in report


def test_json_has_the_same_answers(monkeypatch: pytest.MonkeyPatch, report: str) -> None:
    message = json.loads(info.json_report(frozenset({"fentry"})))
    assert message["type"] == "info"
    data = message["data"]
    assert list(data) == [
        "what_can_be_traced_here", "system", "privileges", "build", "kernel_helpers", "kernel_features", "probe_types",
    ]  # fmt: skip
    assert (data["probe_types"]["kprobe"], data["probe_types"]["uprobe"]) == (False, True)
    assert data["probe_types"]["fentry"] == "switched off"
    words = {True: "yes", False: "no"}
    assert data["system"]["CPUs"] == os.cpu_count()
    rows = [row for section in data.values() for row in section.items()]
    lines = [f"  {name}: {words[value] if isinstance(value, bool) else value}" for name, value in rows]
    assert lines == [line for line in report.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(("held", "answer"), [
    ({"CAP_BPF", "CAP_PERFMON"}, "no (tracing needs root, or CAP_DAC_READ_SEARCH, which "), (None, "yes"),
])  # fmt: skip
def test_privileges_say_what_is_missing(monkeypatch: pytest.MonkeyPatch, held: set[str] | None, answer: str) -> None:
    monkeypatch.setattr(features, "has", lambda name: True)
    names = privileges.CAPABILITIES if held is None else held
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: frozenset(names))
    monkeypatch.setattr(privileges, "check_bpf", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    report = info.report()
    assert f"  tracing: {answer}" in report
    enough = "yes" if held is None else "no (lacks CAP_DAC_READ_SEARCH)"
    assert f"  every run (CAP_BPF, CAP_PERFMON, CAP_DAC_READ_SEARCH): {enough}\n" in report
    assert f"  CAP_SYSLOG: {'yes' if held is None else 'no'}\n" in report
    assert held is None or "CAP_DAC_READ_SEARCH" in report.split("  tracing: ")[1]


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
    assert f"  dwunwind (DWARF stack unwinding): {answer}\n" in info.report()


LINES = [
    "libdw (DWARF support): yes", "libsystemd (systemd notify support): yes", "bfd: no",
    "libdebuginfod (debuginfod support): yes", "blazesym (advanced symbolization): yes",
    "dpath: yes", "get_tai_ns: yes", "get_func_ip: yes", "lookup_percpu_elem: yes", "get_boot_ns: yes",
    "get_ktime_ns: yes", "bcc library path resolution: yes",
    "probe_read_kernel: yes", "send_signal: yes", "override_return: yes", "jiffies64: yes", "skboutput: yes",
    "Instruction limit: 1000000", "Loop support: yes", "btf: yes", "module btf: yes", "map batch: yes",
    "kprobe_multi: yes", "uprobe_multi: yes", "kprobe_session: yes", "iter: yes", "uprobe: yes", "fentry: switched off",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_lines_that_suites_and_reports_look_for(report: str, line: str) -> None:
    """By these bpftrace's own test suite and others decide what to run."""
    assert report.count(f"  {line}\n") == 1


def test_other_names_follow_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "has", lambda name: False)
    text = info.report()
    for line in ("dpath: no", "Instruction limit: 4096", "Loop support: no", "module btf: no", "kprobe_multi: no"):
        assert f"  {line}\n" in text
    assert {name for rows in info._AS_ELSEWHERE.values() for _, name in rows} <= set(features.FEATURES)
