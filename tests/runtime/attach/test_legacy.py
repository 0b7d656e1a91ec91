"""pytrace.runtime.attach.legacy: definitions in files that stand for those of tracefs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.runtime.abi import perf
from pytrace.runtime.attach import legacy
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.host import fingerprints, tracefs
from tests.support.attach_requests import Kernel, kernel

MINE = f"{fingerprints.TRACER}{os.getpid()}"
GONE = 1 << 22 | 1
"""No process has that number."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two empty lists of definitions; each written definition appears as an event with the number 77."""
    for name in ("kprobe_events", "uprobe_events"):
        (tmp_path / name).touch()
    monkeypatch.setattr(tracefs, "root", lambda: str(tmp_path))
    write = legacy._write

    def define(path: str, text: str) -> None:
        write(path, text)
        if not text.startswith("-"):
            event = tmp_path / "events" / text.split(maxsplit=1)[0].partition(":")[2]
            event.mkdir(parents=True)
            (event / "id").write_text("77\n")

    monkeypatch.setattr(legacy, "_write", define)
    legacy.sweep.cache_clear()
    yield tmp_path
    legacy.sweep.cache_clear()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel(monkeypatch)


@pytest.mark.parametrize(("returns", "letter"), [(False, "p"), (True, "r")])
def test_a_kernel_probe(root: Path, fake: Kernel, returns: bool, letter: str) -> None:
    opened = Opened()
    legacy.open_kprobe("nf:hook+3", returns=returns, opened=opened, symbol="program_0")
    made = re.fullmatch(rf"{letter}:({MINE}/(p\d+_\d+)) nf:hook\+3\n", (root / "kprobe_events").read_text())
    assert made is not None
    assert opened.traced == {made[2]: "program_0"}
    assert fake.asked == [("open_event", (perf.EventAttr(perf.EventType.TRACEPOINT, 77, period=1),), {"cpu": 2})]
    opened.close()
    assert (root / "kprobe_events").read_text().splitlines()[1:] == [f"-:{made[1]}"]


@pytest.mark.parametrize(
    ("semaphore", "pid", "place", "where"),
    [(0, None, "/bin/app:0x10", {"cpu": 2}), (0x300, 7, "/bin/app:0x10(0x300)", {"pid": 7})],
)
def test_a_user_probe(
    root: Path, fake: Kernel, semaphore: int, pid: int | None, place: str, where: dict[str, int]
) -> None:
    opened = Opened()
    legacy.open_uprobe("/bin/app", 0x10, semaphore, returns=False, pid=pid, opened=opened)
    assert (root / "uprobe_events").read_text().split()[1] == place
    assert fake.options("open_event") == [where]
    assert opened.traced == {}
    opened.close()


def test_each_probe_has_a_name_of_its_own(root: Path, fake: Kernel) -> None:
    opened = Opened()
    for _ in range(3):
        legacy.open_kprobe("f", returns=False, opened=opened)
    names = [line.split()[0] for line in (root / "kprobe_events").read_text().splitlines()]
    assert len(set(names)) == 3
    opened.close()


def test_what_tracers_left_that_are_gone_is_removed_once(root: Path) -> None:
    path = root / "uprobe_events"
    left = f"{fingerprints.TRACER}{GONE}/p{GONE}_0"
    lines = [
        f"p:{left} /bin/app:0x10",
        f"r:{left[:-1]}1 /bin/app:0x20",
        f"p:{MINE}/p{os.getpid()}_9 /bin/app:0x30",
        f"p:other{GONE}/p{GONE}_0 /bin/app:0x40",
        f"p:{fingerprints.TRACER}{GONE}/q{GONE}_0 /bin/app:0x50",
    ]
    path.write_text("\n".join(lines) + "\n")
    legacy.sweep(str(path))
    assert path.read_text().splitlines()[len(lines) :] == [f"-:{left}", f"-:{left[:-1]}1"]
    legacy.sweep(str(path))
    assert len(path.read_text().splitlines()) == len(lines) + 2


def test_what_is_in_use_all_the_same_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_path: str, _text: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(legacy, "_write", busy)
    (root / "kprobe_events").write_text(f"p:{fingerprints.TRACER}{GONE}/p{GONE}_0 f\n")
    legacy.sweep(str(root / "kprobe_events"))
