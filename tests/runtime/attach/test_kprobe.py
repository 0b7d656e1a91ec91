"""pytrace.runtime.attach.kprobe: multi links, sessions, perf events and tracefs, by what is asked of the kernel."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.probes.targets import KernelFunctionTarget
from pytrace.runtime.abi import perf
from pytrace.runtime.abi.bpf import AttachType
from pytrace.runtime.attach import kprobe, legacy
from pytrace.runtime.attach.base import Attached, Failure, Outcome
from pytrace.runtime.attach.opened import Opened
from tests.support.attach_requests import Kernel, Requests, attached, catch, functions, job, kernel, spec, target


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return catch(monkeypatch)


@pytest.mark.parametrize("kind", ["kprobe", "kretprobe"])
def test_many_functions_are_one_link(requests: Requests, kind: str) -> None:
    names = [f"function_{number}" for number in range(1000)]
    done = attached(spec("p", kind, functions(kind, *names), multi="kprobe_multi"))
    assert len(done.attached) == 1000
    (link,) = requests.multi
    assert link["kind"] == AttachType.TRACE_KPROBE_MULTI
    assert link["returns"] == (kind == "kretprobe")
    assert link["symbols"] == names
    assert link["cookies"] == list(range(1000))


def test_functions_that_the_kernel_refuses_are_found_by_halving(requests: Requests) -> None:
    requests.refused = {"b", "e"}
    targets = functions("kprobe", *"abcdefgh")
    done = attached(spec("p", "kprobe", targets, multi="kprobe_multi"), missing_probes="warn")
    assert sorted(item.target.probe for item in done.failures) == ["kprobe:b", "kprobe:e"]
    assert sorted(name for link in requests.multi for name in link["symbols"]) == list("acdfgh")
    with pytest.raises(TraceError, match="kprobe:b"):
        attached(spec("p", "kprobe", targets, multi="kprobe_multi"))


def test_a_session_is_one_link_for_both(requests: Requests) -> None:
    entry = spec("e", "kprobe", functions("kprobe", "vfs_read", "vfs_write"), multi="kprobe_session")
    targets = functions("kretprobe", "vfs_read", "vfs_write")
    leaving = spec("r", "kretprobe", targets, multi="kprobe_session", part_of="e")
    done = attached(entry, leaving)
    (link,) = requests.multi
    assert link["kind"] == AttachType.TRACE_KPROBE_SESSION
    assert not link["returns"]
    assert link["symbols"] == ["vfs_read", "vfs_write"]
    assert sorted(item.target.probe for item in done.attached) == [
        "kprobe:vfs_read", "kprobe:vfs_write", "kretprobe:vfs_read", "kretprobe:vfs_write",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- one target

SYMBOLS = (
    b"ffffffff81000100 T vfs_read\nffffffff81000200 t vfs.read\nffffffff81000300 D vfs_data\n"
    b"ffffffffa0000100 t vfs_read\t[nf]\n0000000000000000 T hidden\n"
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(kprobe, "_symbols", lambda: SimpleNamespace(text=SYMBOLS))
    return kernel(monkeypatch)


def single(
    place: KernelFunctionTarget, kind: str = "kprobe", lacks: tuple[str, ...] = ("kprobe_multi",), **options: Any
) -> Outcome:
    opened = Opened()
    (found,) = kprobe.attach(job(spec("p", kind, (target(place, 9),)), lacks=lacks, **options), opened)
    opened.close()
    return found


@pytest.mark.parametrize(
    ("place", "kind", "name", "config", "config2"),
    [
        (KernelFunctionTarget("vfs_read"), "kprobe", "vfs_read", 0, 0),
        (KernelFunctionTarget("vfs_read", offset=4), "kprobe", "vfs_read", 0, 4),
        (KernelFunctionTarget("vfs_read"), "kretprobe", "vfs_read", 1, 0),
        (KernelFunctionTarget(address=0xFFFF), "kprobe", "", 0, 0xFFFF),
        (KernelFunctionTarget("vfs_read", "nf", 4), "kprobe", "", 0, 0xFFFFFFFFA0000104),
        (KernelFunctionTarget("vfs_read", "vmlinux"), "kprobe", "", 0, 0xFFFFFFFF81000100),
    ],
)
def test_a_perf_event_by_name_or_address(
    fake: Kernel, place: KernelFunctionTarget, kind: str, name: str, config: int, config2: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    names: list[str] = []

    def memory(text: str) -> Any:
        names.append(text)
        return SimpleNamespace(address=0x5000)

    monkeypatch.setattr(kprobe, "string_memory", memory)
    assert isinstance(single(place, kind), Attached)
    ((attr,),) = fake.arguments("open_event")
    assert (attr.type, attr.config, attr.config1, attr.config2) == (6, config, 0x5000 if name else 0, config2)
    assert names[0] == name or not name
    assert fake.options("open_event") == [{"cpu": 2}]
    assert fake.arguments("link_perf_event")[0][2] == 9


@pytest.mark.parametrize(
    "place",
    [
        KernelFunctionTarget("vfs_read", "other"), KernelFunctionTarget("vfsXread", "vmlinux"),
        KernelFunctionTarget("vfs_data", "vmlinux"), KernelFunctionTarget("hidden", "vmlinux"),
    ],
)  # fmt: skip
def test_addresses_of_functions_that_are_not_there(fake: Kernel, place: KernelFunctionTarget) -> None:
    found = single(place)
    assert isinstance(found, Failure)
    assert found.reason == "the kernel has no function of that name"


def test_a_dot_in_a_name_is_a_dot(fake: Kernel) -> None:
    assert isinstance(single(KernelFunctionTarget("vfs.read", "vmlinux")), Attached)
    assert fake.arguments("open_event")[0][0].config2 == 0xFFFFFFFF81000200


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "the kernel has no function of that name"),
        (errno.EINVAL, "not traceable, on its blacklist, or not an instruction"),
        (errno.EILSEQ, "not at the start of an instruction"),
        (errno.EADDRNOTAVAIL, "several functions have that name"),
        (errno.EPERM, "Operation not permitted"),
        (errno.EACCES, "no permission for a perf event, as in containers: use fentry"),
    ],
)
def test_refusals_in_words(fake: Kernel, number: int, reason: str) -> None:
    fake.errors["open_event"] = number
    found = single(KernelFunctionTarget("vfs_read"))
    assert isinstance(found, Failure)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("vfs_read", ":0xffffffff81000100 or "),
        ("hidden", "/proc/kallsyms, with --unsafe: "),
    ],
)
def test_several_functions_of_a_name_have_addresses(
    fake: Kernel, monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    monkeypatch.setattr(kprobe, "_symbols", lambda: SimpleNamespace(text=SYMBOLS.replace(b"\t[nf]", b"")))
    fake.errors["open_event"] = errno.EADDRNOTAVAIL
    found = single(KernelFunctionTarget(name))
    assert isinstance(found, Failure)
    assert hint in found.hints[0]
    assert "--unsafe" in found.hints[0]


def test_a_kernel_without_kprobes(fake: Kernel) -> None:
    found = single(KernelFunctionTarget("vfs_read"), lacks=("kprobe", "perf_kprobe"))
    assert isinstance(found, Failure)
    assert found.reason == "this kernel has no kprobes (CONFIG_KPROBES)"
    assert found.hints


def test_a_kernel_that_has_no_kind_of_event_for_them(fake: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf, "pmu_type", lambda _: None)
    found = single(KernelFunctionTarget("vfs_read"))
    assert isinstance(found, Failure)
    assert found.reason == "this kernel has no perf kprobes"


@pytest.mark.parametrize(
    ("kind", "lacks", "through_tracefs"),
    [
        ("kprobe", ("link_missed",), False),
        ("kretprobe", (), False),
        # Before 6.7 only tracefs tells how many returns were missed.
        ("kretprobe", ("link_missed",), True),
        ("kretprobe", ("link_missed", "kprobe"), False),
        ("kprobe", ("perf_kprobe",), True),
    ],
)
def test_when_tracefs_is_used(
    fake: Kernel, kind: str, lacks: tuple[str, ...], through_tracefs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool, str]] = []

    def open_kprobe(place: str, *, returns: bool, opened: Opened, symbol: str) -> int:
        asked.append((place, returns, symbol))
        return int(fake.answer("legacy")())

    monkeypatch.setattr(legacy, "open_kprobe", open_kprobe)
    monkeypatch.setattr(os, "access", lambda *_, **__: True)
    assert isinstance(single(KernelFunctionTarget("vfs_read"), kind, lacks), Attached)
    assert asked == ([("vfs_read", kind == "kretprobe", "p")] if through_tracefs else [])
    # Who may not write to tracefs does without the count.
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    asked.clear()
    assert isinstance(single(KernelFunctionTarget("vfs_read"), kind, lacks), Attached)
    assert bool(asked) == ("perf_kprobe" in lacks)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (KernelFunctionTarget("f"), "f"), (KernelFunctionTarget("f", offset=16), "f+16"),
        (KernelFunctionTarget("f", "nf", 3), "nf:f+3"), (KernelFunctionTarget(address=0xABC), "0xabc"),
    ],
)  # fmt: skip
def test_places_as_tracefs_writes_them(place: KernelFunctionTarget, text: str) -> None:
    assert kprobe._text(place) == text


# ---------------------------------------------------------------------------------------------- many by address


def test_functions_of_modules_go_into_the_link_by_address(fake: Kernel) -> None:
    rows = [("vfs_read", "nf"), ("gone", "nf"), ("vfs_read", "vmlinux")]
    places = [KernelFunctionTarget(name, module) for name, module in rows]
    targets = tuple(target(place, number) for number, place in enumerate(places))
    opened = Opened()
    found = kprobe.attach(job(spec("p", "kretprobe", targets, multi="kprobe_multi")), opened)
    opened.close()
    assert [item.target.cookie for item in found] == [1, 0, 2]
    assert isinstance(found[0], Failure)
    assert fake.options("link_kprobe_multi") == [
        {"addresses": [0xFFFFFFFFA0000100, 0xFFFFFFFF81000100], "cookies": [0, 2], "returns": True, "session": False}
    ]


def test_no_link_without_a_function(fake: Kernel) -> None:
    program = spec("p", "kprobe", (target(KernelFunctionTarget("gone", "nf")),), multi="kprobe_multi")
    assert all(isinstance(item, Failure) for item in kprobe.attach(job(program), Opened()))
    assert fake.asked == []
