"""The table of providers."""

from __future__ import annotations

from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.frontend.attach.providers.table import PROVIDERS


def test_every_kind_has_a_provider() -> None:
    assert set(PROVIDERS) == {row.name for row in PROBE_KINDS}
