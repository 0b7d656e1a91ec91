"""Probes in the kernel: kprobes, their form of old kernels, tracepoints, iterators and events."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.manifest import Target
from pytrace.core.probe_kinds import (
    HARDWARE_EVENTS,
    SYSTEM_CALLS,
    CountedEventTarget,
    IteratorTarget,
    KernelFunctionTarget,
    ProbeTarget,
    RawTracepointTarget,
    TimerTarget,
    TracepointTarget,
    TypedFunctionTarget,
    WatchpointTarget,
)
from pytrace.runtime.load import attachments, probe_links
from pytrace.runtime.load.attachments import KERNEL_ATTACHERS, Task, descendants, include_descendants
from pytrace.runtime.load.probe_links import Attached, Attacher, CannotAttachError, Opened, Outcome, RefusedTarget
from pytrace.runtime.machine import bpf, fingerprints, perf, procfs
from pytrace.runtime.machine.bpf import AttachType
from pytrace.runtime.machine.kernel_functions import Kallsyms
from pytrace.runtime.machine.syscalls import ENOTSUPP
from tests.support.attach_requests import (
    PROGRAM,
    Kernel,
    Requests,
    attached,
    catch,
    functions,
    job,
    kernel,
    spec,
    target,
)

# ---------------------------------------------------------------------------------------------- kprobe
# pytrace.runtime.load.attachments: multi links, sessions, perf events and tracefs, by what is asked of the kernel.


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


def with_symbols(patch: pytest.MonkeyPatch, text: bytes) -> None:
    symbols = Kallsyms()
    symbols.__dict__["text"] = text
    patch.setattr(attachments, "_kernel_symbols", lambda: symbols)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    with_symbols(monkeypatch, SYMBOLS)
    return kernel(monkeypatch)


def single(
    place: KernelFunctionTarget, kind: str = "kprobe", lacks: tuple[str, ...] = ("kprobe_multi",), **options: Any
) -> Outcome:
    opened = Opened()
    (found,) = attachments.attach_kprobe(job(spec("p", kind, (target(place, 9),)), lacks=lacks, **options), opened)
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

    monkeypatch.setattr(attachments, "string_memory", memory)
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
    assert isinstance(found, RefusedTarget)
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
    assert isinstance(found, RefusedTarget)
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
    with_symbols(monkeypatch, SYMBOLS.replace(b"\t[nf]", b""))
    fake.errors["open_event"] = errno.EADDRNOTAVAIL
    found = single(KernelFunctionTarget(name))
    assert isinstance(found, RefusedTarget)
    assert hint in found.hints[0]
    assert "--unsafe" in found.hints[0]


SEVERAL = SYMBOLS + (
    b"ffffffff81000900 t vfs_read\nffffffff82000000 T _sinittext\nffffffff82000010 t vfs_read\n"
    b"ffffffff83000000 T _einittext\nffffffffa0000900 t vfs_read\t[nf]\n"
)
"""Three functions of one name in the kernel, of which one was for the boot, and two in a module."""


@pytest.mark.parametrize(
    ("place", "addresses"),
    [
        (KernelFunctionTarget("vfs_read"), [0xFFFFFFFF81000100, 0xFFFFFFFF81000900]),
        (KernelFunctionTarget("vfs_read", shared=True), [0xFFFFFFFF81000100, 0xFFFFFFFF81000900]),
        (KernelFunctionTarget("vfs_read", offset=4, shared=True), [0xFFFFFFFF81000104, 0xFFFFFFFF81000904]),
        (KernelFunctionTarget("vfs_read", "nf", shared=True), [0xFFFFFFFFA0000100, 0xFFFFFFFFA0000900]),
    ],
)
def test_all_functions_of_a_name_are_probed_by_address(
    fake: Kernel, monkeypatch: pytest.MonkeyPatch, place: KernelFunctionTarget, addresses: list[int]
) -> None:
    """The kernel refuses a name that several have, or before 6.7 takes the first of them."""
    with_symbols(monkeypatch, SEVERAL)
    opened: list[int] = []

    def open_event(attr: perf.EventAttr, **_: object) -> int:
        if attr.config1:
            raise OSError(errno.EADDRNOTAVAIL, "several")
        opened.append(attr.config2)
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(perf, "open_event", open_event)
    assert single(place) == Attached(spec("p", "kprobe", (target(place, 9),)), target(place, 9))
    assert opened == addresses


def test_functions_of_a_name_that_the_kernel_refuses_are_told(fake: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    with_symbols(monkeypatch, SEVERAL)
    refused = {0xFFFFFFFF81000900}

    def open_event(attr: perf.EventAttr, **_: object) -> int:
        if attr.config2 in refused:
            raise OSError(errno.EINVAL, "notrace")
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(perf, "open_event", open_event)
    found = single(KernelFunctionTarget("vfs_read", shared=True))
    assert isinstance(found, Attached)
    assert found.note.startswith("1 of 2 functions named vfs_read are not traced: the kernel does not allow")
    refused.add(0xFFFFFFFF81000100)
    assert isinstance(single(KernelFunctionTarget("vfs_read", shared=True)), RefusedTarget)


def test_a_kernel_without_kprobes(fake: Kernel) -> None:
    found = single(KernelFunctionTarget("vfs_read"), lacks=("kprobe", "perf_kprobe"))
    assert isinstance(found, RefusedTarget)
    assert found.reason == "this kernel has no kprobes (CONFIG_KPROBES)"
    assert found.hints


def test_a_kernel_that_has_no_kind_of_event_for_them(fake: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf, "pmu_type", lambda _: None)
    found = single(KernelFunctionTarget("vfs_read"))
    assert isinstance(found, RefusedTarget)
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

    monkeypatch.setattr(probe_links, "open_kprobe", open_kprobe)
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
        (KernelFunctionTarget(address=0xABC, offset=4), "0xac0"),
    ],
)  # fmt: skip
def test_places_as_tracefs_writes_them(place: KernelFunctionTarget, text: str) -> None:
    assert attachments._definition_text(place) == text


# ---------------------------------------------------------------------------------------------- many by address


def test_functions_of_modules_go_into_the_link_by_address(fake: Kernel) -> None:
    rows = [("vfs_read", "nf"), ("gone", "nf"), ("vfs_read", "vmlinux")]
    places = [KernelFunctionTarget(name, module) for name, module in rows]
    targets = tuple(target(place, number) for number, place in enumerate(places))
    opened = Opened()
    found = attachments.attach_kprobe(job(spec("p", "kretprobe", targets, multi="kprobe_multi")), opened)
    opened.close()
    assert [item.target.cookie for item in found] == [1, 0, 2]
    assert isinstance(found[0], RefusedTarget)
    assert fake.options("link_kprobe_multi") == [
        {"addresses": [0xFFFFFFFFA0000100, 0xFFFFFFFF81000100], "cookies": [0, 2], "returns": True, "session": False}
    ]


def test_functions_of_one_name_go_into_a_link_by_address(fake: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    with_symbols(monkeypatch, SEVERAL)
    places = [KernelFunctionTarget("vfs_write"), KernelFunctionTarget("vfs_read", shared=True)]
    targets = tuple(target(place, number) for number, place in enumerate(places))
    opened = Opened()
    found = attachments.attach_kprobe(job(spec("p", "kprobe", targets, multi="kprobe_multi")), opened)
    opened.close()
    assert sorted(item.target.cookie for item in found) == [0, 1]
    assert all(isinstance(item, Attached) for item in found)
    assert fake.options("link_kprobe_multi") == [
        {"addresses": [0xFFFFFFFF81000100, 0xFFFFFFFF81000900], "cookies": [1, 1], "returns": False, "session": False},
        {"symbols": ["vfs_write"], "cookies": [0], "returns": False, "session": False},
    ]


def test_a_link_without_those_of_a_name_that_the_kernel_refuses(fake: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    with_symbols(monkeypatch, SEVERAL)
    linked: list[list[int]] = []

    def link(_program: int, *, addresses: list[int], **_: object) -> int:
        if 0xFFFFFFFF81000900 in addresses:
            raise OSError(errno.ENOENT, "no such place")
        linked.append(addresses)
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(bpf, "link_kprobe_multi", link)
    place = target(KernelFunctionTarget("vfs_read", shared=True), 5)
    opened = Opened()
    (found,) = attachments.attach_kprobe(job(spec("p", "kprobe", (place,), multi="kprobe_multi")), opened)
    opened.close()
    assert linked == [[0xFFFFFFFF81000100]]
    assert isinstance(found, Attached)
    assert found.note == (
        "1 of 2 functions named vfs_read are not traced: the kernel has no function of that name"
    )


def test_no_link_without_a_function(fake: Kernel) -> None:
    program = spec("p", "kprobe", (target(KernelFunctionTarget("gone", "nf")),), multi="kprobe_multi")
    assert all(isinstance(item, RefusedTarget) for item in attachments.attach_kprobe(job(program), Opened()))
    assert fake.asked == []


# ---------------------------------------------------------------------------------------------- legacy
# pytrace.runtime.load.probe_links: definitions in files that stand for those of tracefs.


MINE = f"{fingerprints.TRACER}{os.getpid()}"
GONE = 1 << 22 | 1
"""No process has that number."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two empty lists of definitions; each written definition appears as an event with the number 77."""
    for name in ("kprobe_events", "uprobe_events"):
        (tmp_path / name).touch()
    monkeypatch.setattr(fingerprints, "tracefs_root", lambda: str(tmp_path))
    write = probe_links._write

    def define(path: str, text: str) -> None:
        write(path, text)
        if not text.startswith("-"):
            event = tmp_path / "events" / text.split(maxsplit=1)[0].partition(":")[2]
            event.mkdir(parents=True)
            (event / "id").write_text("77\n")

    monkeypatch.setattr(probe_links, "_write", define)
    probe_links.sweep.cache_clear()
    yield tmp_path
    probe_links.sweep.cache_clear()


@pytest.fixture
def legacy_fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel(monkeypatch)


@pytest.mark.parametrize(("returns", "letter"), [(False, "p"), (True, "r")])
def test_a_kernel_probe(root: Path, legacy_fake: Kernel, returns: bool, letter: str) -> None:
    opened = Opened()
    probe_links.open_kprobe("nf:hook+3", returns=returns, opened=opened, symbol="program_0")
    made = re.fullmatch(rf"{letter}:({MINE}/(p\d+_\d+)) nf:hook\+3\n", (root / "kprobe_events").read_text())
    assert made is not None
    assert opened.traced == {made[2]: "program_0"}
    assert legacy_fake.asked == [("open_event", (perf.EventAttr(perf.EventType.TRACEPOINT, 77, period=1),), {"cpu": 2})]
    opened.close()
    assert (root / "kprobe_events").read_text().splitlines()[1:] == [f"-:{made[1]}"]


@pytest.mark.parametrize(
    ("semaphore", "pid", "place", "where"),
    [(0, None, "/bin/app:0x10", {"cpu": 2}), (0x300, 7, "/bin/app:0x10(0x300)", {"pid": 7})],
)
def test_a_user_probe(
    root: Path, legacy_fake: Kernel, semaphore: int, pid: int | None, place: str, where: dict[str, int]
) -> None:
    opened = Opened()
    probe_links.open_uprobe("/bin/app", 0x10, semaphore, returns=False, pid=pid, opened=opened)
    assert (root / "uprobe_events").read_text().split()[1] == place
    assert legacy_fake.options("open_event") == [where]
    assert opened.traced == {}
    opened.close()


def test_each_probe_has_a_name_of_its_own(root: Path, legacy_fake: Kernel) -> None:
    opened = Opened()
    for _ in range(3):
        probe_links.open_kprobe("f", returns=False, opened=opened)
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
    probe_links.sweep(str(path))
    assert path.read_text().splitlines()[len(lines) :] == [f"-:{left}", f"-:{left[:-1]}1"]
    probe_links.sweep(str(path))
    assert len(path.read_text().splitlines()) == len(lines) + 2


def test_what_is_in_use_all_the_same_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_path: str, _text: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(probe_links, "_write", busy)
    (root / "kprobe_events").write_text(f"p:{fingerprints.TRACER}{GONE}/p{GONE}_0 f\n")
    probe_links.sweep(str(root / "kprobe_events"))


# ---------------------------------------------------------------------------------------------- semaphores

PAGE = mmap.PAGESIZE


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two files with the same inode number, on file systems of their own."""
    with ExitStack() as stack:
        files = []
        for name in ("one", "other"):
            folder = tmp_path / name
            folder.mkdir()
            command = ["mount", "-t", "tmpfs", "none", str(folder)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("no file system can be mounted here")
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            file = folder / "binary"
            file.write_bytes(bytes(2 * PAGE))
            files.append(file)
        if files[0].stat().st_ino != files[1].stat().st_ino:
            pytest.skip("inode numbers are those of this kernel's tmpfs only")
        yield files[0], files[1]


@pytest.mark.kernel
def test_a_semaphore_is_sought_in_its_own_file(twins: tuple[Path, Path]) -> None:
    mapped, other = twins
    with (
        open(mapped, "r+b") as file,
        mmap.mmap(file.fileno(), PAGE, flags=mmap.MAP_PRIVATE, offset=PAGE) as memory,
    ):
        word = ctypes.c_uint16.from_buffer(memory, 6)
        place = ctypes.addressof(word)
        pid = os.getpid()
        assert probe_links._addresses(str(mapped), PAGE + 6, pid) == [place]
        assert probe_links._addresses(str(mapped), 6, pid) == []
        assert probe_links._addresses(str(other), PAGE + 6, pid) == []
        del word


# ---------------------------------------------------------------------------------------------- raising


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[ctypes.c_uint16]]:
    """Semaphores in this process's memory, which others are said to have, too."""
    found: dict[int, list[ctypes.c_uint16]] = {}

    def addresses(path: str, offset: int, pid: int) -> list[int]:
        assert (path, offset) == ("/bin/app", 0x300)
        return [ctypes.addressof(word) for word in found.get(pid, [])]

    add = probe_links._add
    monkeypatch.setattr(probe_links, "_addresses", addresses)
    monkeypatch.setattr(probe_links, "_add", lambda pid, *rest: pid in found and add(os.getpid(), *rest))
    monkeypatch.setattr(procfs, "process_ids", lambda: [7, 8, 9])
    return found


def test_one_process(places: dict[int, list[ctypes.c_uint16]]) -> None:
    first, second, other = ctypes.c_uint16(3), ctypes.c_uint16(0xFFFF), ctypes.c_uint16(5)
    places.update({7: [first, second], 8: [other]})
    opened = Opened()
    probe_links.raise_semaphore("/bin/app", 0x300, 7, everywhere=True, opened=opened)
    assert [first.value, second.value, other.value] == [4, 0, 5]
    opened.close()
    assert [first.value, second.value, other.value] == [3, 0xFFFF, 5]


def test_all_processes_that_map_the_file(places: dict[int, list[ctypes.c_uint16]]) -> None:
    words = [ctypes.c_uint16(0) for _ in range(2)]
    places.update({7: [words[0]], 9: [words[1]]})
    opened = Opened()
    probe_links.raise_semaphore("/bin/app", 0x300, None, everywhere=True, opened=opened)
    assert [word.value for word in words] == [1, 1]
    # One has ended meanwhile.
    del places[7]
    opened.close()
    assert [word.value for word in words] == [1, 0]


def test_nobody_is_named() -> None:
    with pytest.raises(CannotAttachError, match="the kernel cannot raise it") as raised:
        probe_links.raise_semaphore("/bin/app", 0x300, None, everywhere=False, opened=Opened())
    assert raised.value.hints == ("use -p or --usdt-file-activation",)


@pytest.mark.parametrize(("pid", "everywhere"), [(8, False), (None, True)])
def test_nobody_maps_the_file(places: dict[int, list[ctypes.c_uint16]], pid: int | None, everywhere: bool) -> None:
    opened = Opened()
    with pytest.raises(CannotAttachError, match="no process that could be reached has mapped the file"):
        probe_links.raise_semaphore("/bin/app", 0x300, pid, everywhere=everywhere, opened=opened)
    assert opened.steps == []


def test_memory_that_cannot_be_written() -> None:
    assert not probe_links._add(1 << 22 | 1, 0, 1), "no such process"
    assert not probe_links._add(os.getpid(), 0, 1), "no such memory"


def test_a_process_that_gave_up_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``mem`` could be opened before it ended, and is then read as empty."""
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    assert not probe_links._add(os.getpid(), 0, 1)


# ---------------------------------------------------------------------------------------------- tracepoint
# pytrace.runtime.load.attachments: the event of a tracepoint's number, on one CPU.


PLACE = target(TracepointTarget("sched", "exec"), 9)


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "events/sched/exec").mkdir(parents=True)
    (tmp_path / "events/sched/exec/id").write_text("321\n")
    monkeypatch.setattr(fingerprints, "tracefs_root", lambda: str(tmp_path))
    return tmp_path


def test_a_tracepoint_is_an_event_by_number(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, opened = kernel(monkeypatch), Opened()
    program = spec("p", "tracepoint", (PLACE,))
    assert attachments.attach_tracepoint(job(program), opened) == [Attached(program, PLACE)]
    attr = perf.EventAttr(perf.EventType.TRACEPOINT, 321, period=1, flags=perf.FLAG_DISABLED)
    assert fake.asked[0] == ("open_event", (attr,), {"cpu": 2})
    assert fake.arguments("link_perf_event") == [(PROGRAM, opened.idle_events[0], 9)]
    opened.close()


def test_a_tracepoint_that_is_not_there(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = kernel(monkeypatch)
    missing = target(TracepointTarget("sched", "gone"))
    assert attachments.attach_tracepoint(job(spec("p", "tracepoint", (missing,))), Opened()) == [
        RefusedTarget(missing, "this kernel has no tracepoint sched:gone")
    ]
    assert fake.asked == []


CALLS = tuple(target(TracepointTarget("syscalls", f"sys_enter_{name}"), at) for at, name in enumerate(("read", "open")))


def test_system_calls_share_a_raw_tracepoint(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, opened = kernel(monkeypatch), Opened()
    program = spec("p", "tracepoint", CALLS, multi=SYSTEM_CALLS)
    assert attachments.attach_tracepoint(job(program), opened) == [Attached(program, item) for item in CALLS]
    assert fake.arguments("raw_tracepoint_open") == [(PROGRAM,)]
    assert len(opened.links) == 1
    opened.close()


def test_a_raw_tracepoint_that_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_program: int) -> int:
        raise OSError(errno.EPERM, "Operation not permitted")

    kernel(monkeypatch)
    monkeypatch.setattr(attachments.bpf, "raw_tracepoint_open", refuse)
    program = spec("p", "tracepoint", CALLS, multi=SYSTEM_CALLS)
    failures = [RefusedTarget(item, "Operation not permitted") for item in CALLS]
    assert attachments.attach_tracepoint(job(program), Opened()) == failures


# ---------------------------------------------------------------------------------------------- tracing programs

FUNCTION = TypedFunctionTarget("f", "vmlinux")


@pytest.fixture
def tracepoint_fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel(monkeypatch)


@pytest.mark.parametrize(
    ("kind", "attach_type"),
    [
        ("fentry", AttachType.TRACE_FENTRY),
        ("fexit", AttachType.TRACE_FEXIT),
        ("rawtracepoint", AttachType.TRACE_RAW_TP),
    ],
)
def test_a_cookie_needs_a_link_that_has_one(tracepoint_fake: Kernel, kind: str, attach_type: AttachType) -> None:
    place = RawTracepointTarget("e", "vmlinux") if kind == "rawtracepoint" else FUNCTION
    program, opened = spec("p", kind, (target(place, 5),)), Opened()
    assert attachments._attach_tracing(job(program), opened) == [Attached(program, program.targets[0])]
    assert tracepoint_fake.asked == [("link_tracing", (PROGRAM, attach_type, 5), {})]
    assert opened.links == tracepoint_fake.opened
    opened.close()


@pytest.mark.parametrize(("cookie", "lacks"), [(0, ()), (5, ("tracing_cookie",))])
def test_the_older_way(tracepoint_fake: Kernel, cookie: int, lacks: tuple[str, ...]) -> None:
    program, opened = spec("p", "fentry", (target(FUNCTION, cookie),)), Opened()
    attachments._attach_tracing(job(program, lacks=lacks), opened)
    assert tracepoint_fake.asked == [("raw_tracepoint_open", (PROGRAM,), {})]
    opened.close()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "no longer exists"),
        (errno.EBUSY, "excludes BPF programs is already attached"),
        (errno.E2BIG, "limit of programs"),
        (ENOTSUPP, "no BPF trampolines"),
        (errno.EOPNOTSUPP, "no BPF trampolines"),
        (errno.EPERM, os.strerror(errno.EPERM)),
    ],
)
def test_tracepoint_refusals_in_words(tracepoint_fake: Kernel, number: int, reason: str) -> None:
    tracepoint_fake.errors["raw_tracepoint_open"] = number
    (found,) = attachments._attach_tracing(job(spec("p", "fentry", (target(FUNCTION),))), Opened())
    assert isinstance(found, RefusedTarget)
    assert reason in found.reason


def test_a_program_has_one_target(tracepoint_fake: Kernel) -> None:
    program = spec("p", "fentry", (target(FUNCTION), target(FUNCTION, 1)))
    with pytest.raises(InternalError, match="p: a tracing program is loaded for one target, not for many"):
        attachments._attach_tracing(job(program), Opened())


# ---------------------------------------------------------------------------------------------- iterator
# pytrace.runtime.load.attachments: links that are read or pinned, and what refusals of both mean.


UNMOUNTED = "its directory must be in a mounted bpffs (mount -t bpf bpf /sys/fs/bpf)"


@pytest.fixture
def iterator_fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = kernel(monkeypatch)
    monkeypatch.setattr(bpf, "obj_pin", made.answer("obj_pin"))
    return made


def iterator_attached(pin: str = "") -> Outcome:
    opened = Opened()
    (found,) = attachments.attach_iterator(job(spec("p", "iter", (target(IteratorTarget("task", pin)),))), opened)
    opened.close()
    return found


def test_a_link_to_read(iterator_fake: Kernel) -> None:
    found = iterator_attached()
    assert isinstance(found, Attached)
    assert (found.iterator, found.note) == (iterator_fake.opened[0], "")
    assert iterator_fake.arguments("link_iter") == [(PROGRAM,)]
    assert iterator_fake.arguments("obj_pin") == []


@pytest.mark.parametrize(("pin", "path"), [("mine", "/sys/fs/bpf/mine"), ("/mnt/bpf/mine", "/mnt/bpf/mine")])
def test_a_pinned_link_is_not_read(iterator_fake: Kernel, pin: str, path: str) -> None:
    found = iterator_attached(pin)
    assert isinstance(found, Attached)
    assert (found.iterator, found.note) == (None, f"kind:x is pinned; read {path} to run it")
    assert iterator_fake.arguments("obj_pin") == [(iterator_fake.opened[0], path)]


@pytest.mark.parametrize(
    ("call", "number", "reason"),
    [
        ("link_iter", errno.EBADF, "it iterates over one map or cgroup, which a probe cannot name"),
        ("link_iter", errno.EINVAL, "it iterates over one map or cgroup, which a probe cannot name"),
        ("link_iter", errno.EPERM, "Operation not permitted"),
        ("obj_pin", errno.EEXIST, "/sys/fs/bpf/mine already exists"),
        ("obj_pin", errno.EPERM, f"cannot pin to /sys/fs/bpf/mine: {UNMOUNTED}"),
        ("obj_pin", errno.EROFS, "cannot pin to /sys/fs/bpf/mine: Read-only file system"),
    ],
)  # fmt: skip
def test_iterator_refusals_in_words(iterator_fake: Kernel, call: str, number: int, reason: str) -> None:
    iterator_fake.errors[call] = number
    found = iterator_attached("mine")
    assert isinstance(found, RefusedTarget)
    assert found.reason == reason
    assert iterator_fake.left_open == []


def test_reading_goes_on_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel asks to come again when a program had to give up its CPU."""
    read, write = os.pipe()
    os.write(write, b"one two")
    monkeypatch.setattr(bpf, "iter_create", lambda link: read)
    pieces = iter([b"one ", BlockingIOError(errno.EAGAIN, "again"), b"two", b""])

    def some(descriptor: int, size: int) -> bytes:
        assert descriptor == read
        piece = next(pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece

    monkeypatch.setattr(os, "read", some)
    assert list(bpf.read_iterator(3)) == [b"one ", b"two"]
    os.close(write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


def test_a_reading_that_fails_closes_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(bpf, "iter_create", lambda link: read)
    os.set_blocking(read, True)
    monkeypatch.setattr(os, "read", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        list(bpf.read_iterator(3))
    os.close(write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


# ---------------------------------------------------------------------------------------------- descendants


def test_descendants_of_descendants() -> None:
    tasks = [Task(5, 4, 5), Task(1, 0, 1), Task(4, 2, 4), Task(2, 1, 2), Task(3, 1, 3), Task(6, 3, 6)]
    assert [task.process for task in descendants([2], tasks)] == [4, 5]
    assert [task.process for task in descendants([2, 3], tasks)] == [4, 6, 5]
    # A root that descends from another is in the family of that.
    assert [task.process for task in descendants([4, 2], tasks)] == [5, 4]
    assert descendants([5], tasks) == []
    assert descendants([99], tasks) == []


def test_the_root_is_named_by_its_number_here() -> None:
    """In a pid namespace process 1 is another one than the machine's."""
    tasks = [Task(1, 0, 0), Task(700, 1, 1), Task(702, 700, 3), Task(3, 1, 0)]
    assert descendants([1], tasks) == [Task(702, 700, 3)]


class Machine:
    """Processes as they are at each look at them, and the set in the kernel; *room* is the set's size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: list[Task], room: int = 100) -> None:
        self.looks = list(looks)
        self.followed: set[bytes] = set()
        self.room = room
        monkeypatch.setattr(
            attachments, "_read_tasks", lambda _link: self.looks.pop(0) if self.looks[1:] else self.looks[0]
        )
        monkeypatch.setattr(bpf, "map_lookup", lambda _fd, key, _size: key if key in self.followed else None)
        monkeypatch.setattr(bpf, "map_delete", lambda _fd, key: self.followed.discard(key))
        monkeypatch.setattr(bpf, "map_update", self.update)

    def update(self, _descriptor: int, key: bytes, _value: bytes) -> None:
        if len(self.followed) == self.room:
            raise OSError(errno.E2BIG, "full")
        self.followed.add(key)

    @property
    def numbers(self) -> list[int]:
        return sorted(int.from_bytes(key, "little") for key in self.followed)


ROOT, CHILD, GRANDCHILD = Task(10, 1, 10), Task(11, 10, 11), Task(12, 11, 12)


def test_a_fork_between_two_looks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD], [ROOT, CHILD, GRANDCHILD])
    assert include_descendants([10], 0, 0) == ([11, 12], 0)
    assert machine.numbers == [11, 12]


def test_a_process_that_ended_between_two_looks_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may come again for a process that nobody follows."""
    machine = Machine(monkeypatch, [ROOT, CHILD, GRANDCHILD], [ROOT, CHILD])
    assert include_descendants([10], 0, 0) == ([11], 0)
    assert machine.numbers == [11]


def test_what_the_set_knows_from_forks_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD], [ROOT, CHILD, Task(13, 11, 13)])
    machine.followed.add((13).to_bytes(4, "little"))
    assert include_descendants([10], 0, 0) == ([11, 13], 0)
    assert machine.looks == [[ROOT, CHILD, Task(13, 11, 13)]]


def test_a_full_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD, GRANDCHILD], room=1)
    assert include_descendants([10], 0, 0) == ([11], 1)
    assert machine.numbers == [11]


# ---------------------------------------------------------------------------------------------- events
# pytrace.runtime.load.attachments: which perf events are opened, for whom, and what refusals mean.


@pytest.fixture
def events_requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    monkeypatch.setattr(perf, "set_period", lambda _event, _period: None)
    return catch(monkeypatch)


def test_processor_events_are_counted_on_each_cpu(events_requests: Requests) -> None:
    row = next(item for item in HARDWARE_EVENTS if item.name == "cache-misses")
    place = CountedEventTarget("cache-misses", row.config, 5000)
    attached(spec("h", "hardware", (Target("hardware:cache-misses:5000", 0, place),)))
    assert [(pid, cpu) for _, pid, cpu in events_requests.events] == [(-1, cpu) for cpu in perf.online_cpus()]
    kind, _size, config, period = struct.unpack_from("=IIQQ", events_requests.events[0][0])
    assert (kind, config, period) == (perf.EventType.HARDWARE, 3, 5000)


def tasks() -> set[int]:
    """Threads of this process; some, of pools that have ended, may be about to end."""
    return {int(name) for name in os.listdir("/proc/self/task")}


@pytest.mark.parametrize(("follow", "threads_only"), [(False, True), (True, False)])
def test_events_of_a_process_are_inherited(events_requests: Requests, follow: bool, threads_only: bool) -> None:
    target = Target("hardware:instructions:1000", 0, CountedEventTarget("instructions", 1, 1000))
    before = tasks()
    own = os.getpid()
    attached(spec("h", "hardware", (target,)), pids=(own,), child=own if follow else None, follow=follow)
    assert before & tasks() <= {pid for _, pid, _ in events_requests.events} <= before
    flags = struct.unpack_from("=Q", events_requests.events[0][0], 40)[0]
    assert flags & perf.FLAG_INHERIT
    assert bool(flags & perf.FLAG_INHERIT_THREAD) == threads_only


def test_programs_look_for_the_descendants_of_a_running_process(events_requests: Requests) -> None:
    """Which of them have inherited an event cannot be told, and each must be counted once."""
    target = Target("hardware:instructions:1000", 0, CountedEventTarget("instructions", 1, 1000))
    attached(spec("h", "hardware", (target,)), pids=(os.getpid(),), follow=True)
    assert [(pid, cpu) for _, pid, cpu in events_requests.events] == [(-1, cpu) for cpu in perf.online_cpus()]
    assert not struct.unpack_from("=Q", events_requests.events[0][0], 40)[0] & perf.FLAG_INHERIT


def test_watchpoints_ask_for_a_breakpoint(events_requests: Requests) -> None:
    target = Target("watchpoint:0x1000:8:rw", 0, WatchpointTarget(0x1000, 8, "rw"))
    before = tasks()
    attached(spec("w", "watchpoint", (target,)), child=os.getpid())
    head = events_requests.events[0][0]
    assert struct.unpack_from("=I", head)[0] == perf.EventType.BREAKPOINT
    assert struct.unpack_from("=IQQ", head, 52) == (3, 0x1000, 8)
    assert before & tasks() <= {pid for _, pid, _ in events_requests.events} <= before


# ---------------------------------------------------------------------------------------------- one target


@pytest.fixture
def events_fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(perf, "max_sample_rate", lambda: 1000)
    return kernel(monkeypatch)


def events_single(attacher: Attacher, kind: str, place: ProbeTarget, **options: Any) -> Outcome:
    opened = Opened()
    (found,) = attacher(job(spec("p", kind, (target(place, 9),)), **options), opened)
    opened.close()
    return found


@pytest.mark.parametrize(
    ("timer", "period", "frequency"),
    [(TimerTarget(frequency=99), 99, True), (TimerTarget(period_ns=1_000_000), 1_000_000, False)],
)
def test_clocks_by_frequency_or_period(events_fake: Kernel, timer: TimerTarget, period: int, frequency: bool) -> None:
    attr = perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_CPU_CLOCK, period=period, frequency=frequency)
    assert isinstance(events_single(KERNEL_ATTACHERS["interval"], "interval", timer, pids=(7,)), Attached)
    assert events_fake.asked[0] == ("open_event", (attr,), {"cpu": 2}), "one CPU is enough, whatever the process"
    assert isinstance(events_single(KERNEL_ATTACHERS["profile"], "profile", timer), Attached)
    for pids in ((), (7, 8)):
        assert isinstance(events_single(KERNEL_ATTACHERS["profile"], "profile", timer, pids=pids), Attached), (
            "CPUs are sampled"
        )
    assert events_fake.options("open_event")[1:] == [{"cpu": 2}, {"cpu": 5}] * 3
    assert events_fake.arguments("open_event")[1:] == [(attr,)] * 6
    mean = 1e9 / 99 if frequency else 1e6
    phases = [length / mean for _, length in events_fake.arguments("set_period")]
    assert all(0.5 <= phase <= 1.5 for phase in phases)
    assert len(set(phases)) == len(phases) == 6


def clock(event: str, period: int) -> CountedEventTarget:
    return CountedEventTarget(event, {"cpu-clock": 0, "page-faults": 2, "task-clock": 1}[event], period)


@pytest.mark.parametrize("place", [TimerTarget(frequency=99), clock("cpu-clock", 10**6), clock("task-clock", 10**5)])
def test_threads_are_sampled_where_cpus_are_refused(
    events_fake: Kernel, place: TimerTarget | CountedEventTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = events_fake.answer("open_event")

    def of_threads(attr: perf.EventAttr, *, pid: int = -1, cpu: int = -1) -> int:
        if cpu != -1:
            raise PermissionError(errno.EACCES, "Permission denied")
        return int(answer(attr, pid=pid))

    monkeypatch.setattr(perf, "open_event", of_threads)
    monkeypatch.setattr(probe_links, "threads", lambda pid: [pid, pid + 1])
    kind = "profile" if isinstance(place, TimerTarget) else "software"
    found = events_single(KERNEL_ATTACHERS[kind], kind, place, pids=(10, 20))
    assert isinstance(found, Attached)
    assert "samples threads, not CPUs (Permission denied)" in found.note
    assert events_fake.options("open_event") == [{"pid": pid} for pid in (10, 11, 20, 21)]
    assert events_fake.left_open == []
    assert events_fake.arguments("set_period") == []
    assert isinstance(events_single(KERNEL_ATTACHERS[kind], kind, place), RefusedTarget), (
        "of all processes nothing else can be sampled"
    )


@pytest.mark.parametrize("place", [clock("cpu-clock", 10**4), clock("page-faults", 10**6)])
def test_what_is_counted_or_very_short_stays_with_threads(
    events_fake: Kernel, place: CountedEventTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_links, "threads", lambda pid: [pid])
    assert isinstance(events_single(KERNEL_ATTACHERS["software"], "software", place, pids=(10, 20)), Attached)
    assert events_fake.options("open_event") == [{"pid": 10}, {"pid": 20}]
    assert events_fake.arguments("set_period") == []


@pytest.mark.parametrize(
    ("attacher", "kind", "number"),
    [
        (KERNEL_ATTACHERS["software"], "software", perf.EventType.SOFTWARE),
        (KERNEL_ATTACHERS["hardware"], "hardware", perf.EventType.HARDWARE),
    ],
)
def test_events_that_are_counted(events_fake: Kernel, attacher: Attacher, kind: str, number: perf.EventType) -> None:
    assert isinstance(events_single(attacher, kind, CountedEventTarget("x", 3, 5000)), Attached)
    assert events_fake.arguments("open_event")[0] == (perf.EventAttr(number, 3, period=5000),)


def test_watchpoints_are_kept_by_address(events_fake: Kernel) -> None:
    opened = Opened()
    place = target(WatchpointTarget(0x1000, 8, "w"))
    KERNEL_ATTACHERS["watchpoint"](job(spec("w", "watchpoint", (place,))), opened)
    assert list(opened.watched) == [0x1000]
    assert [list(events.parts) for events in opened.on_cpus()] == [[2, 5]]
    assert len(events_fake.left_open) == 4
    opened.unwatch(0x1000)
    assert events_fake.left_open == []


@pytest.mark.parametrize("attacher", [KERNEL_ATTACHERS["interval"], KERNEL_ATTACHERS["profile"]])
@pytest.mark.parametrize(
    ("timer", "number", "reason", "limit"),
    [
        (TimerTarget(frequency=1001), errno.EINVAL, "the kernel samples at most 1000 times a second", True),
        (TimerTarget(frequency=1000), errno.EINVAL, "the kernel does not accept that event, period or address", False),
        (TimerTarget(period_ns=5), errno.EINVAL, "the kernel does not accept that event, period or address", False),
        (TimerTarget(frequency=1001), errno.EBUSY, "the CPU's counters are in use", True),
        (TimerTarget(frequency=9), errno.ENOSPC, "all hardware breakpoints of the CPU are in use", True),
        (TimerTarget(frequency=9), errno.EPERM, "perf_event_open() is refused to this process", False),
    ],
)
def test_events_refusals_in_words(
    events_fake: Kernel, attacher: Attacher, timer: TimerTarget, number: int, reason: str, limit: bool
) -> None:
    events_fake.errors["open_event"] = number
    found = events_single(attacher, "interval", timer)
    assert isinstance(found, RefusedTarget)
    assert (found.reason, found.limit) == (reason, limit)
    assert bool(found.hints) is ("at most" in reason or "refused" in reason)


def test_an_event_that_this_machine_does_not_have(events_fake: Kernel) -> None:
    events_fake.errors["open_event"] = errno.ENOENT
    found = events_single(KERNEL_ATTACHERS["hardware"], "hardware", CountedEventTarget("x", 3, 5000))
    assert isinstance(found, RefusedTarget)
    assert found.reason == "this machine's CPU or kernel does not support that event"
