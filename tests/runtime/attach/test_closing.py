"""Descriptors that many probes leave behind are closed, all of them and once, whatever the machine refuses."""

from __future__ import annotations

import os
from threading import Thread
from typing import Any

import pytest

from pytrace.runtime.abi import bpf_maps
from pytrace.runtime.attach import closing


def _descriptors(count: int) -> list[int]:
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]


def _open(descriptors: list[int]) -> list[int]:
    return [item for item in descriptors if os.path.exists(f"/proc/self/fd/{item}")]


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_all_are_closed(count: int) -> None:
    descriptors = _descriptors(count)
    closing.close_all(descriptors)
    assert not _open(descriptors)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_machine_that_gives_no_more_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Thread.start
    left = iter(range(threads))

    def refuse(thread: Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", refuse)
    descriptors = _descriptors(20)
    closing.close_all(descriptors)
    assert not _open(descriptors)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_kernel_that_does_not_take_them(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(bpf_maps, "create", refuse)
    descriptors = _descriptors(count)
    closing.close_later(descriptors)
    assert not _open(descriptors)
