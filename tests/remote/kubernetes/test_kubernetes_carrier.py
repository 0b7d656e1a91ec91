"""The end of an exec. ``tests/kernel/test_kubernetes.py`` carries messages to agents."""

from __future__ import annotations

import pytest

from pytrace.remote.kubernetes.kubernetes_carrier import exit_status


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b'{"status": "Success"}', 0),
        (b'{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "127"}]}}', 127),
        (b'{"status": "Failure", "message": "container not found"}', None),
        (b'{"status": "Failure", "details": {"causes": []}}', None),
        (b'{"status": "Failure", "details": {"causes": [{"message": "no number"}]}}', None),
        (b'{"status": "Failure", "details": 5}', None),
        (b"[]", None),
        (b"", None),
    ],
)
def test_exit_status(data: bytes, status: int | None) -> None:
    assert exit_status(data) == status
