"""Probes in programs: uprobes, and those on lines of Python."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pytrace.core.probe_kinds import FileTarget, PythonTarget, StaticProbeTarget, UserTarget
from pytrace.runtime.load import probe_links, user_probes
from pytrace.runtime.load.probe_links import Attached, Opened, Outcome, RefusedTarget
from pytrace.runtime.machine import perf
from pytrace.runtime.stacks.python_interpreters import EvalLoop
from tests.support.attach_requests import PROGRAM, Kernel, job, kernel, spec, target

# ---------------------------------------------------------------------------------------------- uprobe
# pytrace.runtime.load.user_probes: links by file, single events, semaphores, and refusals.


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel(monkeypatch)


def attached(
    *places: FileTarget, kind: str = "uprobe", multi: str = "", lacks: tuple[str, ...] = (), **options: Any
) -> list[Outcome]:
    opened = Opened()
    targets = tuple(target(place, number) for number, place in enumerate(places))
    found = user_probes.attach_uprobe(job(spec("p", kind, targets, multi=multi), lacks=lacks, **options), opened)
    opened.close()
    return found


# ---------------------------------------------------------------------------------------------- multi links


def test_one_link_for_each_file(fake: Kernel) -> None:
    found = attached(
        UserTarget("/a", 16), UserTarget("/b", 32), UserTarget("/a", 48), UserTarget("/x.apk!/lib/l.so", 64),
        multi="uprobe_multi",
    )  # fmt: skip
    assert all(isinstance(item, Attached) for item in found)
    assert fake.arguments("link_uprobe_multi") == [
        (PROGRAM, "/a", [16, 48]), (PROGRAM, "/b", [32]), (PROGRAM, "/x.apk", [64]),
    ]  # fmt: skip
    assert [options["cookies"] for options in fake.options("link_uprobe_multi")] == [[0, 2], [1], [3]]


@pytest.mark.parametrize(
    ("kind", "multi", "options", "told"),
    [
        ("uprobe", "uprobe_multi", {}, {"pid": 0, "returns": False, "session": False}),
        ("uretprobe", "uprobe_multi", {"pids": (7,)}, {"pid": 7, "returns": True, "session": False}),
        ("uprobe", "uprobe_session", {"pids": (7,), "follow": True}, {"pid": 0, "returns": False, "session": True}),
    ],
)
def test_what_a_link_is_told(
    fake: Kernel, kind: str, multi: str, options: dict[str, Any], told: dict[str, Any]
) -> None:
    attached(UserTarget("/a", 16), kind=kind, multi=multi, **options)
    (found,) = fake.options("link_uprobe_multi")
    assert {name: found[name] for name in told} == told
    assert found["semaphores"] == ()


def test_semaphores_of_static_probes(fake: Kernel) -> None:
    attached(
        StaticProbeTarget("/a", 16, semaphore_offset=0x300), StaticProbeTarget("/a", 32), kind="usdt",
        multi="uprobe_multi",
    )  # fmt: skip
    assert fake.options("link_uprobe_multi")[0]["semaphores"] == [0x300, 0]


# ---------------------------------------------------------------------------------------------- single events


@pytest.mark.parametrize(
    ("kind", "place", "lacks", "config"),
    [
        ("uprobe", UserTarget("/x.apk!/l.so", 16), (), 0),
        ("uretprobe", UserTarget("/x.apk!/l.so", 16), (), 1),
        ("usdt", StaticProbeTarget("/x.apk!/l.so", 16, semaphore_offset=0x300), (), 0x300 << 32),
    ],
)
@pytest.mark.parametrize(("options", "where"), [({}, {"cpu": 2}), ({"pids": (7,)}, {"pid": 7})])
def test_a_perf_event(
    fake: Kernel, kind: str, place: FileTarget, lacks: tuple[str, ...], config: int, options: dict[str, Any],
    where: dict[str, int], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    names: list[str] = []
    memory = SimpleNamespace(address=0x5000)
    monkeypatch.setattr(user_probes, "string_memory", lambda text: names.append(text) or memory)
    (found,) = attached(place, kind=kind, lacks=lacks, **options)
    assert isinstance(found, Attached)
    ((attr,),) = fake.arguments("open_event")
    assert (attr.type, attr.config, attr.config1, attr.config2) == (7, config, 0x5000, 16)
    assert names == ["/x.apk"]
    assert fake.options("open_event") == [where]


def test_a_kernel_with_tracefs_only(fake: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def open_uprobe(*arguments: Any, returns: bool, pid: int | None, opened: Opened) -> int:
        asked.append((*arguments, returns, pid))
        return int(fake.answer("legacy")())

    monkeypatch.setattr(probe_links, "open_uprobe", open_uprobe)
    (found,) = attached(UserTarget("/a", 16), kind="uretprobe", lacks=("perf_uprobe",), pids=(7,))
    assert isinstance(found, Attached)
    assert asked == [("/a", 16, 0, True, 7)]


@pytest.mark.parametrize(
    ("lacks", "pmu", "reason"),
    [
        (("uprobe", "perf_uprobe"), 7, "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)"),
        ((), None, "this kernel has no perf uprobes"),
    ],
)
def test_a_kernel_without(
    fake: Kernel, lacks: tuple[str, ...], pmu: int | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf, "pmu_type", lambda _: pmu)
    (found,) = attached(UserTarget("/a", 16), lacks=lacks)
    assert isinstance(found, RefusedTarget)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("semaphore", "lacks", "raised"), [(0x300, (), 0), (0x300, ("semaphores",), 1), (0, ("semaphores",), 0)]
)
def test_semaphores_that_the_kernel_does_not_raise(
    fake: Kernel, semaphore: int, lacks: tuple[str, ...], raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        probe_links, "raise_semaphore",
        lambda path, offset, pid, *, everywhere, opened: asked.append((path, offset, pid, everywhere)),
    )  # fmt: skip
    place = StaticProbeTarget("/a", 16, semaphore_offset=semaphore)
    attached(place, kind="usdt", lacks=lacks, pids=(7,), file_activation=True)
    assert asked == [("/a", 0x300, 7, True)] * raised
    assert fake.arguments("open_event")[0][0].config >> 32 == (0 if lacks else semaphore)


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(("multi", "call"), [("", "open_event"), ("uprobe_multi", "link_uprobe_multi")])
@pytest.mark.parametrize(
    ("number", "reason", "goes"),
    [
        (errno.ENOENT, "there is no such file", True),
        (errno.ESRCH, "there is no such process", True),
        (errno.EACCES, "the file may not be read", False),
        (errno.EILSEQ, "not at the start of an instruction", False),
        (524, "the instruction there cannot be probed", False),
        (errno.EPERM, "Operation not permitted", False),
    ],
)
@pytest.mark.parametrize("by_pattern", [False, True])
def test_refusals_in_words(
    fake: Kernel, multi: str, call: str, number: int, reason: str, goes: bool, by_pattern: bool
) -> None:
    fake.errors[call] = number
    (found,) = attached(UserTarget("/a", 16, by_pattern), multi=multi)
    assert isinstance(found, RefusedTarget)
    assert reason in found.reason
    assert found.gone is (goes and by_pattern), "only what a pattern found may be gone"
    assert not found.left_out
    (found,) = attached(UserTarget("/a", 16, found=True), multi=multi)
    assert isinstance(found, RefusedTarget)
    assert found.left_out is (number == 524), "other functions of the pattern are traced"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (UserTarget("{file}", 16), "this one has no counter (semaphore)"),
        (UserTarget("{file}", 4096), "the file has only 100 bytes, the offset is 4096"),
        (UserTarget("/no/such/file", 16), "another tracer has a probe at that offset with another counter"),
        (StaticProbeTarget("{file}", 16, semaphore_offset=0x300), "this one has counter (semaphore) at offset 0x300"),
        (StaticProbeTarget("{file}", 16, semaphore_offset=0x301), "at the odd offset 769"),
    ],
)
def test_offsets_that_the_kernel_refuses(fake: Kernel, tmp_path: Path, place: FileTarget, reason: str) -> None:
    file = tmp_path / "program"
    file.write_bytes(bytes(100))
    fake.errors["open_event"] = errno.EINVAL
    (found,) = attached(replace(place, path=place.path.format(file=file)), kind="usdt")
    assert isinstance(found, RefusedTarget)
    assert reason in found.reason


# ---------------------------------------------------------------------------------------------- python
# pytrace.runtime.load.user_probes: links at the places of an interpreter, and refusals.


LOOP = EvalLoop((16, 32), (48,), 6)


@pytest.fixture
def python_fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(user_probes, "_find_interpreter", lambda _pid: ("/python", LOOP))
    return kernel(monkeypatch)


def python_attached(kind: str = "python", *, multi: str = "uprobe_multi", **options: Any) -> list[Outcome]:
    opened = Opened()
    place = target(PythonTarget(("a.py",), "f"), 0)
    found = user_probes.attach_python(job(spec("p", kind, (place,), multi=multi), **options), opened)
    opened.close()
    return found


@pytest.mark.parametrize(
    ("kind", "options", "offsets", "pid"),
    [
        ("python", {"pids": (7,)}, [16, 32], 7),
        ("python", {"child": 8}, [16, 32], 8),
        ("pythonret", {"pids": (7,), "follow": True}, [48], 0),
    ],
)
def test_links(python_fake: Kernel, kind: str, options: dict[str, Any], offsets: list[int], pid: int) -> None:
    (outcome,) = python_attached(kind, **options)
    assert isinstance(outcome, Attached)
    ((program, path, places),) = python_fake.arguments("link_uprobe_multi")
    assert (program, path, list(places)) == (PROGRAM, "/python", offsets)
    (told,) = python_fake.options("link_uprobe_multi")
    assert (told["pid"], told["cookies"]) == (pid, [0] * len(offsets))


def test_needs_a_process(python_fake: Kernel) -> None:
    (outcome,) = python_attached()
    assert isinstance(outcome, RefusedTarget)
    assert outcome.reason == "it needs a process"


def test_processes_without_an_interpreter() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            (outcome,) = python_attached(pids=(process.pid,))
        finally:
            process.kill()
    assert isinstance(outcome, RefusedTarget)
    assert "runs no CPython that is known" in outcome.reason
    (outcome,) = python_attached(pids=(process.pid,))
    assert isinstance(outcome, RefusedTarget)
    assert outcome.reason == f"there is no process {process.pid}"


def test_the_interpreter_of_this_process() -> None:
    path, _ = user_probes._find_interpreter(os.getpid())
    assert os.path.isfile(path)
