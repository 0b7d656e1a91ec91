"""How agents are started."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.remote.carriage import Carriage


def test_become_is_sudo_without_a_password() -> None:
    assert Carriage().started == "pytrace agent"
    assert Carriage(become=True, command="x").started == "sudo -n x"


def test_other_workers_are_errors() -> None:
    with pytest.raises(TraceError, match="a worker is one of ssh, rsh, exec, not 'pdsh'"):
        Carriage(worker="pdsh")
