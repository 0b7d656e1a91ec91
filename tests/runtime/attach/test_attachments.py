"""The table of attachers is complete; services of the script's programs attach first."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.core.manifest import Target
from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.core.probes.targets import SYSTEM_CALLS, TracepointTarget
from pytrace.runtime.attach import attachments
from pytrace.runtime.attach.attachments import ATTACHERS
from tests.support.attach_requests import attached, spec
from tests.support.rows import each_row


def test_every_probe_kind_that_attaches_has_an_attacher() -> None:
    assert set(ATTACHERS) == {row.name for row in PROBE_KINDS if not row.special}


@each_row("kind", ATTACHERS)
def test_attacher_exists(kind: str) -> None:
    assert callable(ATTACHERS[kind](kind))


def test_services_attach_first_and_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def note(job: Any, _opened: Any) -> list[Any]:
        order.append(job.spec.symbol)
        return [attachments.Attached(job.spec, target) for target in job.spec.targets]

    monkeypatch.setitem(ATTACHERS, "tracepoint", lambda _kind: note)
    event = (Target("tracepoint:sched:x", 0, TracepointTarget("sched", "x")),)
    done = attached(spec("script", "tracepoint", event), spec("fork", "tracepoint", event, service=True))
    assert order == ["fork", "script"]
    assert [item.spec.symbol for item in done.attached] == ["script"]


CALLS = [(Target(f"tracepoint:syscalls:{name}", 0, TracepointTarget("syscalls", name)),) for name in ("a", "b")]


@pytest.mark.parametrize("fails", [False, True])
def test_parts_of_a_program_for_system_calls_fare_like_it(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    def attach(job: Any, _opened: Any) -> list[Any]:
        made = attachments.Failure if fails else lambda target, _why: attachments.Attached(job.spec, target)
        return [made(target, "why") for target in job.spec.targets]

    monkeypatch.setitem(ATTACHERS, "tracepoint", lambda _kind: attach)
    owner = spec("owner", "tracepoint", CALLS[0], multi=SYSTEM_CALLS)
    part = spec("part", "tracepoint", CALLS[1], multi=SYSTEM_CALLS, part_of="owner")
    done = attached(owner, part, missing_probes="warn")
    found = [item.target for item in (done.failures if fails else done.attached)]
    assert found == [CALLS[0][0], CALLS[1][0]]
    assert not (done.attached if fails else done.failures)
