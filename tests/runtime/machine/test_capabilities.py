"""pytrace.runtime.machine.capabilities: in children, as nothing that is given up comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")

_SHOW = """
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "NoNewPrivs")):
        print(*line.split())
"""


def after(code: str) -> dict[str, int]:
    """The numbers of ``/proc/self/status`` in a child that ran *code*."""
    text = f"from pytrace.runtime.machine import capabilities\n{code}\n{_SHOW}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=ROOT)
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: int(value, 16) for name, value in rows}


def test_what_is_held() -> None:
    permitted = "int(open('/proc/self/status').read().split('CapPrm:')[1].split()[0], 16)"
    assert after(f"assert capabilities.permitted() == {permitted}")["CapEff:"]


def test_all_but_one_are_given_up() -> None:
    given_up = "assert capabilities.bound(1 << 19); capabilities.hold(1 << 19, 1 << 19)"
    shown = after(f"{given_up}; capabilities.gain_no_more()")
    assert shown == {
        "CapInh:": 0, "CapPrm:": 1 << 19, "CapEff:": 1 << 19, "CapBnd:": 1 << 19, "CapAmb:": 0, "NoNewPrivs:": 1,
    }  # fmt: skip


def test_high_numbers_are_in_the_second_word() -> None:
    assert after("capabilities.hold(1 << 39, 1 << 39 | 1)")["CapEff:"] == 1 << 39


def test_nothing_comes_back() -> None:
    code = """
capabilities.hold(0, 0)
assert not capabilities.bound(0)
try:
    capabilities.hold(1, 1)
except PermissionError as error:
    assert "capset" in str(error)
else:
    raise SystemExit("it came back")
"""
    assert after(code)["CapPrm:"] == 0
