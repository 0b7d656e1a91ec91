"""Processes of /proc: facts about them, those that are selected, their containers and clocks."""

from __future__ import annotations

import builtins
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytrace.base import cgroups
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.load import live_kernel
from pytrace.runtime.machine import clocks, fingerprints, procfs, selected_processes
from pytrace.runtime.machine import selected_processes as module
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.machine.host_names import CgroupPaths
from pytrace.runtime.machine.procfs import Mapping
from pytrace.runtime.machine.selected_processes import _cgroups_by_id, container_by_name, container_processes
from pytrace.runtime.stacks import symbolizer
from tests.support.waiting import until

# ---------------------------------------------------------------------------------------------- procfs
# pytrace.runtime.machine.procfs: rows of ``maps``, and processes that are gone, hidden or elsewhere.


MAPS = b"""\
559de0000000-559de0001000 r--p 00000000 fe:01 1234                       /usr/bin/thing
559de0001000-559de0003000 r-xp 00001000 fe:01 1234                       /usr/bin/thing
559de0003000-559de0004000 rw-p 00003000 fe:01 1234                       /usr/bin/thing
559de0004000-559de0005000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 r-xp 00000000 103:02 77                        /tmp/a b.so (deleted)
7f0000001000-7f0000002000 rwxp 00000000 00:00 0\x20
7fff00000000-7fff00001000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
not a row
"""
NOBODY = 1 << 22 | 1
"""No process has that number: it is above the largest ``pid_max``."""


def test_executable_rows() -> None:
    rows = procfs.executable_mappings(MAPS)
    assert [row.path for row in rows] == ["/usr/bin/thing", "/tmp/a b.so", "", "[vdso]", "[vsyscall]"]
    assert rows[0] == Mapping(
        0x559DE0001000, 0x559DE0003000, 0x1000, os.makedev(0xFE, 1), 1234, "/usr/bin/thing"
    )
    assert (rows[1].device, rows[1].inode) == (os.makedev(0x103, 2), 77)
    assert rows[-1].end == 0xFFFFFFFFFF601000


def test_writable_rows() -> None:
    assert [row.path for row in procfs.writable_mappings(MAPS)] == ["/usr/bin/thing", "[heap]", ""]
    assert procfs.writable_mappings(b"") == []


def test_paths_in_any_encoding() -> None:
    (row,) = procfs.executable_mappings(b"1000-2000 r-xp 00000000 00:01 5 /tmp/\xff\n")
    assert os.fsencode(row.path) == b"/tmp/\xff"


def test_numbers_larger_than_those_of_the_kernel_are_no_mapping() -> None:
    row = b"1000-2000 r-xp 00000000 00:%s 5 /tmp/x\n"
    assert procfs.executable_mappings(row % b"fffff")[0].device == os.makedev(0, 0xFFFFF)
    assert procfs.executable_mappings(row % (b"f" * 40)) == []
    assert procfs.executable_mappings(b"f" * 17 + row % b"1") == []


def test_this_process() -> None:
    me = os.getpid()
    assert me in procfs.process_ids()
    pids = procfs.process_ids()
    assert pids == sorted(pids)
    assert procfs.root_prefix(me) == ""
    assert os.path.samefile(procfs.executable(me), sys.executable)
    assert not symbolizer.hidden(me)
    live_kernel.check_visible(me)
    files = procfs.mapped_files(me)
    assert any(os.path.samefile(path, sys.executable) for path in files if os.path.exists(path))
    assert len(files) == len(set(files))
    assert not any(path.startswith("[") for path in files)


def test_only_files_are_mapped_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some drivers map what has an inode and no path."""
    maps = MAPS + b"2000-3000 r-xp 00000000 00:0f 9 anon_inode:[perf_event]\n" + MAPS
    monkeypatch.setattr(procfs, "read_maps", lambda _pid: maps)
    monkeypatch.setattr(procfs, "root_prefix", lambda _pid: "/proc/7/root")
    assert procfs.mapped_files(7) == ["/proc/7/root/usr/bin/thing", "/proc/7/root/tmp/a b.so"]


ENDED = """
import ctypes, os, threading, time
def later():
    print(os.getpid(), threading.get_native_id(), flush=True)
    time.sleep(60)
threading.Thread(target=later).start()
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="exit(2) has another number elsewhere")
def test_a_process_whose_first_thread_has_ended() -> None:
    """``/proc/PID/maps`` is empty then; the memory is that of the threads that go on."""
    child = subprocess.Popen([sys.executable, "-c", ENDED], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        _, thread = map(int, child.stdout.readline().split())
        until(lambda: procfs.live_thread(child.pid) == thread)
        assert not Path(f"/proc/{child.pid}/maps").read_bytes()
        assert b"r-xp" in procfs.read_maps(child.pid)
    finally:
        child.kill()
        child.communicate()
    assert procfs.live_thread(child.pid) == 0
    assert procfs.live_thread(os.getpid()) == os.getpid()


def test_children_and_ancestors() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in procfs.children(os.getpid())
        assert procfs.ancestors(child.pid)[0] == os.getpid()
        assert procfs.ancestors(child.pid)[1] == os.getppid()
    finally:
        child.kill()
        child.communicate()
    assert procfs.children(NOBODY) == procfs.ancestors(NOBODY) == []


def test_a_process_that_is_gone() -> None:
    assert procfs.read_maps(NOBODY) == b""
    assert procfs.root_prefix(NOBODY) == ""
    assert procfs.executable(NOBODY) == ""
    assert procfs.mapped_files(NOBODY) == []
    assert not symbolizer.hidden(NOBODY)
    for check in (procfs.check_exists, live_kernel.check_visible):
        with pytest.raises(TraceError, match=f"there is no process {NOBODY}$"):
            check(NOBODY)


@pytest.mark.parametrize(
    ("links", "prefix"),
    [
        ({"/proc/7/ns/mnt": "mnt:[1]", "/proc/self/ns/mnt": "mnt:[1]", "/proc/7/root": "/"}, ""),
        ({"/proc/7/ns/mnt": "mnt:[1]", "/proc/self/ns/mnt": "mnt:[1]", "/proc/7/root": "/jail"}, "/proc/7/root"),
        ({"/proc/7/ns/mnt": "mnt:[2]", "/proc/self/ns/mnt": "mnt:[1]"}, "/proc/7/root"),
        ({}, ""),
    ],
    ids=["same", "chroot", "container", "gone"],
)
def test_how_files_of_a_process_are_reached(
    links: dict[str, str], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "readlink", _links({**links, "/proc/7/exe": "/bin/thing (deleted)"}))
    assert procfs.root_prefix(7) == prefix
    assert procfs.executable(7) == f"{prefix}/bin/thing"


def _links(known: dict[str, str]) -> Callable[[str], str]:
    def readlink(path: str) -> str:
        if path not in known:
            raise FileNotFoundError(path)
        return known[path]

    return readlink


def test_a_process_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "readlink", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    assert symbolizer.hidden(os.getpid())
    assert procfs.read_maps(os.getpid()) == b""
    with pytest.raises(TraceError, match="belongs to another user") as raised:
        live_kernel.check_visible(os.getpid())
    assert raised.value.hints == ("that needs CAP_SYS_PTRACE, or root",)


@pytest.fixture
def ended() -> Iterator[int]:
    """A process that has ended and is not yet collected: like a kernel thread it has no program."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


def test_a_process_without_a_program(ended: int) -> None:
    live_kernel.check_visible(ended)
    assert procfs.executable(ended) == ""
    assert procfs.mapped_files(ended) == []


# ---------------------------------------------------------------------------------------------- links


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """``real/tool``, and links to it: relative, absolute, through a folder, through others, in a circle, to nothing."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/tool").touch()
    links = {
        "relative": "real/tool", "absolute": f"{tmp_path}/real/tool", "folder": "./real/", "up": "real/../folder/tool",
        "twice": "up", "circle": "circle", "dangling": "nowhere/tool",
    }  # fmt: skip
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    ["real/tool", "relative", "absolute", "folder/tool", "up", "twice", "real/..//./folder/tool", "dangling", "gone"],
)
def test_links_of_a_process_stay_below_its_root(tree: Path, path: str) -> None:
    root = f"/proc/{os.getpid()}/root"
    assert procfs.resolved(f"{root}{tree}/{path}") == (root, os.path.realpath(tree / path))
    assert procfs.resolved(f"{tree}/{path}") == ("", os.path.realpath(tree / path))


def test_nothing_is_above_the_root_of_a_process(tree: Path) -> None:
    root = f"/proc/{os.getpid()}/root"
    assert procfs.resolved(f"{root}/../../{tree}/real/tool") == (root, f"{tree}/real/tool")
    assert procfs.resolved("/proc/1/rooted")[0] == ""


def test_paths_as_text_stay_below_the_root_of_a_process() -> None:
    root = "/proc/12/root"
    for path in (f"{root}/../../../etc/x", f"{root}/a/../../b/../etc/./x", f"{root}//etc/x"):
        assert procfs.normalized(path) == f"{root}/etc/x"
    assert procfs.normalized("/usr/../etc/x") == "/etc/x"


def test_a_circle_of_links_ends(tree: Path) -> None:
    root = f"/proc/{os.getpid()}/root"
    assert procfs.resolved(f"{root}{tree}/circle") == (root, f"{tree}/circle")


# ---------------------------------------------------------------------------------------------- selected processes
# Users, cgroups and names of threads that options name.


def test_users_by_name_and_number() -> None:
    assert module.uids(["root", "0", "12345"]) == (0, 12345)
    entry = pwd.getpwall()[-1]
    assert module.uids([entry.pw_name]) == (entry.pw_uid,)
    with pytest.raises(TraceError, match="there is no user 'roott'") as caught:
        module.uids(["roott"])
    assert "root" in caught.value.hints[0]


def test_names_as_long_as_the_kernel_keeps() -> None:
    assert module.comms(["a", "x" * 15, "a"]) == ("a", "x" * 15)
    with pytest.raises(TraceError, match="16 bytes long"):
        module.comms(["x" * 16])
    # 8 letters of two bytes.
    with pytest.raises(TraceError, match="16 bytes long"):
        module.comms(["\u00e4" * 8])


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the mounted hierarchy."""
    root = tmp_path / "unified"
    (root / "app.slice" / "web").mkdir(parents=True)
    monkeypatch.setattr(module, "_unified_mounts", lambda: [str(root)])
    return root


def test_cgroups_by_path(hierarchy: Path) -> None:
    web = (2, os.stat(hierarchy / "app.slice/web").st_ino)
    for path in ("app.slice/web", "/app.slice/web", "/app.slice/web/", f"{hierarchy}/app.slice/web"):
        assert module.cgroups([path]) == (web,), path
    assert module.cgroups(["app.slice", "app.slice/web"]) == ((1, os.stat(hierarchy / "app.slice").st_ino), web)
    assert module.cgroups([str(hierarchy)]) == ((0, os.stat(hierarchy).st_ino),)


def test_what_is_no_cgroup(hierarchy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match=r"there is no cgroup 'app\.slise/web'") as caught:
        module.cgroups(["app.slise/web"])
    assert "app.slice" in caught.value.hints[0]
    with pytest.raises(TraceError, match="'/proc' is not a cgroup of version 2"):
        module.cgroups(["/proc"])
    monkeypatch.setattr(module, "_unified_mounts", list)
    with pytest.raises(TraceError, match="needs a mounted cgroup version 2 hierarchy"):
        module.cgroups(["app.slice"])


def test_network_namespaces() -> None:
    assert module.namespace("/proc/self/ns/net") == os.stat("/proc/self/ns/net").st_ino
    with pytest.raises(TraceError, match="is not a network namespace"):
        module.namespace("/proc/self/ns/mnt")


# ---------------------------------------------------------------------------------------------- containers
# Containers by id: the names that their managers give to cgroups.


ID = "0123456789abcdef" * 4
OTHER = "0123456789ab" + "f" * 52
POD = "12345678-1234-5678-9abc-def012345678"


@pytest.mark.parametrize(
    "path",
    [
        f"system.slice/docker-{ID}.scope", f"docker/{ID}", f"machine.slice/libpod-{ID}.scope",
        f"kubepods.slice/cri-containerd-{ID}.scope", f"kubepods/besteffort/pod{POD}/crio-{ID}.scope", f"k8s.io/{ID}",
    ],
)  # fmt: skip
def test_ids_of_managers(tmp_path: Path, path: str) -> None:
    (tmp_path / path / "inside").mkdir(parents=True)
    (tmp_path / f"machine.slice/libpod-conmon-{ID}.scope").mkdir(parents=True)
    assert _cgroups_by_id(ID[:12], [str(tmp_path)]) == {ID: [f"{tmp_path}/{path}"]}
    assert _cgroups_by_id(ID[1:12], [str(tmp_path)]) == {}


@pytest.mark.parametrize(
    "name", [f"pod{POD}", f"kubepods-burstable-pod{POD.replace('-', '_')}.slice", f"pod{POD.replace('-', '')}"]
)
def test_pods(tmp_path: Path, name: str) -> None:
    (tmp_path / "kubepods" / name / f"cri-containerd-{ID}.scope").mkdir(parents=True)
    whole = POD.replace("-", "")
    expected = {whole: [f"{tmp_path}/kubepods/{name}"]}
    assert _cgroups_by_id(selected_processes._without_separators(POD), [str(tmp_path)]) == expected


def test_an_id_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected_processes, "_unified_mounts", lambda: [str(tmp_path)])
    for identity in (ID, OTHER):
        (tmp_path / f"docker-{identity}.scope").mkdir()
    with pytest.raises(TraceError, match="2 containers have an id that begins with '0123456789ab'") as caught:
        selected_processes.container_cgroups("0123456789ab")
    assert ID in caught.value.hints[0]
    assert OTHER in caught.value.hints[0]
    assert selected_processes.container_cgroups(ID[:13]) == [f"{tmp_path}/docker-{ID}.scope"]


def test_what_is_no_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected_processes, "_unified_mounts", lambda: [str(tmp_path)])
    for wanted, part in (("0123456", "there is no container"), ("web", "there is no container"), (ID, "no running")):
        with pytest.raises(TraceError, match=part):
            selected_processes.container_cgroups(wanted)


def test_names_of_docker_and_podman(tmp_path: Path) -> None:
    (tmp_path / "docker" / ID).mkdir(parents=True)
    (tmp_path / "docker" / ID / "config.v2.json").write_text(json.dumps({"ID": ID, "Name": "/web"}))
    (tmp_path / "docker" / "broken").mkdir()
    (tmp_path / "podman" / "overlay-containers").mkdir(parents=True)
    rows = [{"id": OTHER, "names": ["db", "database"]}]
    (tmp_path / "podman" / "overlay-containers" / "containers.json").write_text(json.dumps(rows))
    places = (str(tmp_path / "docker"), str(tmp_path / "podman"))
    assert [container_by_name(name, *places) for name in ("web", "database", "we")] == [ID, OTHER, ""]


def test_a_container_in_a_cgroup_of_version_1_is_told_by_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, text in (("12", f"4:memory:/docker/{ID}\n0::/\n"), ("7", f"1:cpu:/docker/{ID}/x\n"), ("8", "0::/\n")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    assert container_processes(ID[:12], str(tmp_path)) == [7, 12]
    monkeypatch.setattr(selected_processes, "_unified_mounts", list)
    monkeypatch.setattr(selected_processes, "container_processes", lambda _identity: [7, 12])
    with pytest.raises(TraceError, match="is one of version 1") as caught:
        selected_processes.container_cgroups(ID[:12])
    assert caught.value.hints == ("-p 7,12 --follow traces its processes, and what they start",)


# ---------------------------------------------------------------------------------------------- cgroup paths
# pytrace.runtime.machine.host_names on directories that stand for mounted hierarchies.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three hierarchies and their table of mounts; the unified one is not the first."""
    for folder in ("memory/job", "unified/system.slice/ssh.service", "unified/user.slice", "cpu,cpuacct/job"):
        (tmp_path / folder).mkdir(parents=True)
    rows = [
        ("tmpfs", "unified", "tmpfs"),
        ("cgroup", "memory", "cgroup"),
        ("cgroup2", "unified", "cgroup2"),
        ("cgroup", "cpu,cpuacct", "cgroup"),
    ]
    lines = [
        f"{number} 1 0:{number} / {tmp_path}/{folder} rw,relatime shared:9 - {kind} {source} rw\n"
        for number, (source, folder, kind) in enumerate(rows, 20)
    ]
    (tmp_path / "mounts").write_text("".join(lines))
    return tmp_path


def inode(path: Path) -> int:
    return path.stat().st_ino


def made(root: Path) -> CgroupPaths:
    return CgroupPaths(str(root / "mounts"))


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("unified", "unified:/"),
        ("unified/system.slice/ssh.service", "unified:/system.slice/ssh.service"),
        ("memory/job", "memory:/job"),
        ("cpu,cpuacct", "cpu,cpuacct:/"),
    ],
)
def test_paths_by_id(root: Path, folder: str, path: str) -> None:
    assert made(root).paths(inode(root / folder)) == path


def test_unknown_ids_have_no_path(root: Path) -> None:
    assert made(root).paths(1) == ""
    assert CgroupPaths("/dev/null").paths(inode(root)) == ""


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [("*", True), ("cpu*", True), ("cpu,cpuacct", True), ("memory", False), ("cpu?cpuacct", False), ("[c]pu*", False)],
)
def test_only_a_star_is_special_in_a_pattern(root: Path, pattern: str, shown: bool) -> None:
    assert bool(made(root).paths(inode(root / "cpu,cpuacct/job"), pattern)) is shown


def test_the_unified_hierarchy_comes_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hierarchies are file systems of their own, so one id may be in several."""
    roots = [f"{root}/{folder}" for folder in ("memory", "unified", "cpu,cpuacct")]
    monkeypatch.setattr(fingerprints, "inode", lambda path: 7 if path.rstrip("/") in roots else 1)
    assert made(root).paths(7) == "unified:/,cpu,cpuacct:/,memory:/"


def test_one_walk_serves_all_ids(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[str] = []
    walk = cgroups.directories

    def counted(top: str) -> object:
        walks.append(top)
        return walk(top)

    monkeypatch.setattr(cgroups, "directories", counted)
    found = made(root)
    for folder in ("system.slice", "user.slice", "system.slice/ssh.service"):
        assert found.paths(inode(root / "unified" / folder), "unified") == f"unified:/{folder}"
    assert walks == [f"{root}/unified"]


def test_a_cgroup_that_was_removed_or_made_later(root: Path) -> None:
    found = made(root)
    slice_ = root / "unified/user.slice"
    identity = inode(slice_)
    assert found.paths(identity) == "unified:/user.slice"
    moved = slice_.rename(root / "unified/renamed.slice")
    assert found.paths(identity) == "unified:/renamed.slice"
    later = root / "unified/later"
    later.mkdir()
    assert found.paths(inode(later)) == "unified:/later"
    moved.rmdir()
    assert found.paths(identity) == ""
    assert "/renamed.slice" not in found._known.values(), "containers come and go"


def test_links_are_not_followed(root: Path) -> None:
    inner = root / "outside/inner"
    inner.mkdir(parents=True)
    (root / "unified/link").symlink_to(inner.parent)
    assert made(root).paths(inode(inner)) == ""


def mounted_again(root: Path, device: str, shown: str, folder: str, kind: str) -> None:
    place = f"{root}/{folder}".replace(" ", r"\040")
    with (root / "mounts").open("a") as file:
        file.write(f"90 1 {device} {shown} {place} rw - {kind} none rw\n")


def test_a_hierarchy_that_is_mounted_twice_is_one(root: Path) -> None:
    (root / "chroot/sys").mkdir(parents=True)
    for kind, device, folder in (("cgroup2", "0:22", "unified"), ("cgroup", "0:21", "memory")):
        (root / "chroot/sys" / folder).symlink_to(root / folder)
        mounted_again(root, device, "/", f"chroot/sys/{folder}", kind)
    assert made(root).paths(inode(root / "unified/user.slice")) == "unified:/user.slice"
    assert made(root).paths(inode(root / "memory/job")) == "memory:/job"
    assert len(cgroups.mounts(str(root / "mounts"))) == 5
    assert len(cgroups.hierarchies(str(root / "mounts"))) == 3


# ---------------------------------------------------------------------------------------------- clocks
# Wall time of the kernel's clocks.


def test_boot_clock_becomes_wall_time() -> None:
    now = Clock().wall(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert abs(now - time.time_ns()) < 50_000_000


@pytest.mark.parametrize("kind", [clocks.TAI, clocks.SOFTWARE_TAI])
def test_atomic_time_becomes_wall_time(kind: int) -> None:
    now = Clock().wall(time.clock_gettime_ns(time.CLOCK_TAI), kind)
    assert abs(now - time.time_ns()) < 50_000_000


def test_ticks_go_on_as_the_monotonic_clock_does() -> None:
    length = clocks.tick_length()
    assert 900_000 < length < 11_000_000, "HZ is 100 to 1000"
    first, began = clocks.tick_count(length), time.monotonic_ns()
    time.sleep(0.3)
    passed = (clocks.tick_count(length) - first) * length
    assert abs(passed - (time.monotonic_ns() - began)) < 2 * 10_000_000 + 2 * length


@pytest.mark.parametrize(
    ("hz", "jiffies"), [(100, 30_123), (250, 75_309), (300, 90_370), (1000, 301_239), (1024, 308_468)]
)
def test_units_of_times_become_ticks(hz: int, jiffies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's own arithmetic (jiffies_64_to_clock_t), for each HZ that kernels are built with."""
    length = round(1_000_000_000 / hz)
    units = jiffies * length // 10_000_000
    elapsed = os.times_result((0.0, 0.0, 0.0, 0.0, units / 100))
    monkeypatch.setattr(clocks.os, "times", lambda: elapsed)
    assert 0 <= jiffies - clocks.tick_count(length) <= 10_000_000 // length + 1
