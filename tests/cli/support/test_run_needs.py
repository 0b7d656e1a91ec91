"""The privileges that a script needs, for ``--info`` with a script."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from pytrace.cli.support import run_needs
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.process_filters import ProcessFilters
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.abi import privileges
from pytrace.runtime.session import confinement
from tests.codegen.running import compiled
from tests.support.facts import RecordedKernel

KERNEL = replace(RecordedKernel(), features=RecordedKernel().features | {"fentry"})


def needs(script: str, options: RunOptions | None = None) -> dict[str, tuple[str, ...]]:
    return run_needs.needs(compiled(script, KERNEL).manifest, options or RunOptions())


@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        ("kprobe:vfs_read { @ = count(); }", set()),
        ("kprobe:vfs_read { @[kstack] = count(); }", {confinement.KERNEL_SYMBOLS}),
        ("kprobe:vfs_read { @[ustack] = count(); }", {confinement.USER_SYMBOLS}),
        ("fentry:vfs_read { @ = count(); }", set()),
        ("fentry:mod_a:helper { @ = count(); }", {run_needs.FOREIGN}),
        ('kprobe:vfs_read { cat("/proc/uptime"); }', {confinement.CAT}),
    ],
)
def test_a_script_needs_what_its_probes_and_output_need(script: str, reasons: set[str]) -> None:
    found = needs(script)
    assert found.pop(run_needs.ATTACHES) == privileges.NEEDED
    assert set(found) == reasons


def test_processes_of_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    options = replaced(RunOptions(), filters=ProcessFilters((1,)))
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    assert needs("kprobe:vfs_read { }", options)[run_needs.PROCESSES] == ("CAP_SYS_PTRACE",)
    nowhere = replaced(RunOptions(), filters=ProcessFilters((2**22 + 1,)))
    assert run_needs.PROCESSES not in needs("kprobe:vfs_read { }", nowhere)


def test_rows_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: frozenset(privileges.NEEDED))
    manifest = compiled("kprobe:vfs_read { @[kstack] = count(); }", KERNEL).manifest
    assert list(run_needs.rows(manifest, RunOptions())) == [
        (f"{run_needs.ATTACHES} (CAP_BPF, CAP_PERFMON, CAP_DAC_READ_SEARCH)", True),
        (f"{confinement.KERNEL_SYMBOLS} (CAP_SYSLOG)", "no (lacks CAP_SYSLOG)"),
    ]


def test_a_script_that_this_user_cannot_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "effective_capabilities", frozenset)
    attaches, rest = run_needs.rows_without(TraceError("this user may not read tracefs", hints=("use sudo",)))
    assert attaches[1] == "no (lacks CAP_BPF, CAP_DAC_READ_SEARCH, CAP_PERFMON)"
    assert rest[1] == "no (this user may not read tracefs; use sudo)"
