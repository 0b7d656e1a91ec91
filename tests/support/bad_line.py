"""A bad line between two network namespaces: a program that carries Ethernet frames from one device to the other.

Kernels without ``netem`` can have such lines, too: the devices are those of ``/dev/net/tun``, and every frame is kept
for its delay. Frames with a shorter delay overtake others.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tests.support.waiting import until

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 2, 0x1000
_CLONE_NEWNET = 0x40000000
_TUN = "/dev/net/tun"
_LONGEST = 2048
"""Bytes of a frame."""


class Line(msgspec.Struct, frozen=True):
    """Seconds of *delay* in each direction, give or take *jitter*; shares of frames that are lost or doubled."""

    delay: float
    jitter: float = 0.0
    loss: float = 0.0
    doubled: float = 0.0


def missing() -> str:
    """What this machine lacks for such lines; empty if nothing."""
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as error:
        return f"{_TUN}: {error.strerror}"
    return ""


def laid(line: Line, ends: tuple[tuple[str, str], tuple[str, str]]) -> subprocess.Popen[bytes]:
    """Lay a line between two devices, each a pair of the namespace and the name, which come with it and end with it."""
    words = [word for end in ends for word in end]
    numbers = map(str, (line.delay, line.jitter, line.loss, line.doubled))
    process = subprocess.Popen([sys.executable, "-m", "tests.support.bad_line", *numbers, *words],
                               cwd=Path(__file__).parents[2])  # fmt: skip
    for namespace, device in ends:
        until(lambda: not subprocess.run(["ip", "-n", namespace, "link", "show", device], capture_output=True,  # noqa: B023
                                         check=False).returncode)  # fmt: skip
    return process


def _device(namespace: str, name: str) -> int:
    """A new device in a namespace, which this process enters."""
    with Path(f"/run/netns/{namespace}").open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns: {namespace}")
    descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return descriptor


def _carry(line: Line, devices: tuple[int, int]) -> None:
    chance = random.Random(1)
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        pause = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
        for device in select.select(devices, (), (), pause)[0]:
            frame = os.read(device, _LONGEST)
            other = devices[device == devices[0]]
            for _ in range(1 + (chance.random() < line.doubled)):
                if chance.random() >= line.loss:
                    number += 1
                    due = time.monotonic() + line.delay + line.jitter * chance.uniform(-1, 1)
                    heapq.heappush(waiting, (due, number, other, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, device, frame = heapq.heappop(waiting)
            try:
                os.write(device, frame)
            except OSError:
                continue  # the device is down: the frame is lost


if __name__ == "__main__":
    first, second = (_device(*sys.argv[at : at + 2]) for at in (5, 7))
    _carry(Line(*map(float, sys.argv[1:5])), (first, second))
