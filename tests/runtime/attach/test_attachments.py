"""The table of attachers is complete."""

from __future__ import annotations

from importlib import import_module

import pytest

from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.runtime.attach.attachments import ATTACHERS


def test_every_probe_kind_that_attaches_has_an_attacher() -> None:
    assert set(ATTACHERS) == {row.name for row in PROBE_KINDS if not row.special}


@pytest.mark.parametrize("kind", ATTACHERS)
def test_attacher_exists(kind: str) -> None:
    module, function = ATTACHERS[kind]
    assert callable(getattr(import_module(f"pytrace.runtime.attach.{module}"), function))
