"""Names that typed options may have on this machine."""

from __future__ import annotations

import os

import pytest

from pytrace.cli.scripts.option_names import offered
from pytrace.core.options.option_types import TYPES


def test_things_of_this_machine() -> None:
    assert {str(cpu) for cpu in os.sched_getaffinity(0)} <= set(offered("cpu"))
    assert "lo" in offered("interface")
    assert {"ENOENT", "EPERM"} <= set(offered("errno"))
    assert {"SIGTERM", "TERM"} <= set(offered("signal"))


def test_partitions_are_no_disks() -> None:
    assert not [name for name in offered("disk") if os.path.exists(f"/sys/class/block/{name}/partition")]


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_has_an_answer(kind: str) -> None:
    assert len(set(offered(kind))) == len(offered(kind))
