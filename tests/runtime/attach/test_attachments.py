"""The table of attachers is complete; services of the script's programs attach first."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from pytrace.core.manifest import Target
from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.core.probes.targets import TracepointTarget
from pytrace.runtime.attach import attachments
from pytrace.runtime.attach.attachments import ATTACHERS
from tests.support.attach_requests import attached, spec


def test_every_probe_kind_that_attaches_has_an_attacher() -> None:
    assert set(ATTACHERS) == {row.name for row in PROBE_KINDS if not row.special}


@pytest.mark.parametrize("kind", ATTACHERS)
def test_attacher_exists(kind: str) -> None:
    module, function = ATTACHERS[kind]
    assert callable(getattr(import_module(f"pytrace.runtime.attach.{module}"), function))


def test_services_attach_first_and_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def note(job: Any, _opened: Any) -> list[Any]:
        order.append(job.spec.symbol)
        return [attachments.Attached(job.spec, target) for target in job.spec.targets]

    monkeypatch.setattr(attachments, "_attacher", lambda _kind: note)
    event = (Target("tracepoint:sched:x", 0, TracepointTarget("sched", "x")),)
    done = attached(spec("script", "tracepoint", event), spec("fork", "tracepoint", event, service=True))
    assert order == ["fork", "script"]
    assert [item.spec.symbol for item in done.attached] == ["script"]
