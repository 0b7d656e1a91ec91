"""Names of hosts and addresses, and fingerprints of files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine import fingerprints, host_names
from pytrace.runtime.machine.host_names import HostNames, Interfaces, NetworkNamespaces
from pytrace.runtime.machine.tracefs import Tracepoints
from tests.support.waiting import open_descriptors

# ---------------------------------------------------------------------------------------------- network
# Names of interfaces and network namespaces, and opening a namespace by name.


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_interfaces_are_those_of_this_process() -> None:
    interfaces = Interfaces()
    assert {index: interfaces.name(index) for index, _ in socket.if_nameindex()} == dict(socket.if_nameindex())
    assert interfaces.name(0) is None
    assert interfaces.name(2**64 - 1) is None


def test_an_unknown_interface_is_asked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    links, reads, clock = {1: "lo"}, [], Clock()

    def read(_self: Interfaces) -> dict[int, str]:
        reads.append(clock.now)
        return dict(links)

    monkeypatch.setattr(Interfaces, "_read", read)
    interfaces = Interfaces(clock=clock)
    assert (interfaces.name(1), interfaces.name(7)) == ("lo", None)
    links[7] = "veth0"
    assert interfaces.name(7) is None
    clock.now = host_names.AGAIN
    assert interfaces.name(7) == "veth0"
    del links[7]
    clock.now *= 3
    assert (interfaces.name(8), interfaces.name(7)) == (None, "veth0")
    assert reads == [0.0, host_names.AGAIN, 3 * host_names.AGAIN]


def test_interfaces_without_netlink_have_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyroute2

    def refused(**_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(pyroute2, "IPRoute", refused)
    assert Interfaces().name(1) is None


def test_namespaces_are_known_by_inode(tmp_path: Path) -> None:
    blue, red = tmp_path / "blue", tmp_path / "red"
    blue.touch()
    clock = Clock()
    namespaces = NetworkNamespaces(str(tmp_path), clock)
    assert namespaces.name(blue.stat().st_ino) == "blue"
    red.touch()
    # A new name is seen at once, by the directory's time of change.
    assert namespaces.name(red.stat().st_ino) == "red"
    assert namespaces.name(1) is None


def test_an_inode_number_that_is_used_again_gets_its_new_name(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    inode = old.stat().st_ino
    namespaces = NetworkNamespaces(str(tmp_path), Clock())
    assert namespaces.name(inode) == "old"
    old.rename(new)
    old.touch()
    assert namespaces.name(inode) == "new"


def test_a_namespace_that_is_mounted_after_its_name_appeared_is_found_later(tmp_path: Path) -> None:
    place, other = tmp_path / "namespaces", tmp_path / "other"
    place.mkdir()
    (place / "late").symlink_to(other)
    clock = Clock()
    namespaces = NetworkNamespaces(str(place), clock)
    assert namespaces.name(5) is None
    other.touch()
    inode = other.stat().st_ino
    assert namespaces.name(inode) is None
    clock.now = host_names.AGAIN
    assert namespaces.name(inode) == "late"


def test_no_directory_means_no_names(tmp_path: Path) -> None:
    assert host_names.network_namespaces(str(tmp_path / "none")) == []
    assert NetworkNamespaces(str(tmp_path / "none")).name(4026531833) is None


def test_a_namespace_is_opened_by_path() -> None:
    descriptor = host_names.open_network_namespace("/proc/self/ns/net")
    try:
        assert os.stat(descriptor).st_ino == os.stat("/proc/self/ns/net").st_ino
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("name", "there", "message", "hint"),
    [
        ("bleu", ("blue",), "there is no network namespace 'bleu'", "did you mean blue?"),
        ("x", ("blue", "red"), "there is no network namespace 'x'", "known network namespaces: blue, red"),
        ("x", (), "there is no network namespace 'x'", "ip netns add NAME makes one"),
        ("", ("blue",), "there is no network namespace ''", "known network namespaces: blue"),
        ("..", (), "there is no network namespace '..'", "ip netns add NAME makes one"),
        ("blue", ("blue",), "blue is not a network namespace", "a name in /run/netns or a path like"),
        ("/proc/self/ns/pid", (), "/proc/self/ns/pid is not a network namespace", "a path like /proc/PID/ns/net"),
        ("/dev/null", (), "/dev/null is not a network namespace", "a path like /proc/PID/ns/net"),
        ("/", (), "/ is not a network namespace", "a path like /proc/PID/ns/net"),
    ],
)
def test_what_is_no_namespace_is_refused(
    tmp_path: Path, name: str, there: tuple[str, ...], message: str, hint: str
) -> None:
    for other in there:
        (tmp_path / other).touch()
    before = len(open_descriptors())
    with pytest.raises(TraceError) as caught:
        host_names.open_network_namespace(name, str(tmp_path))
    assert message in caught.value.message
    assert any(hint in text for text in caught.value.hints)
    assert len(os.listdir("/proc/self/fd")) == before


def test_pyroute2_is_imported_only_when_an_interface_is_asked_for() -> None:
    code = (
        "import sys; from pytrace.runtime.machine import host_names\n"
        "print('pyroute2' in sys.modules); host_names.NetworkNamespaces().name(1); print('pyroute2' in sys.modules)\n"
        "host_names.Interfaces().name(1); print('pyroute2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


# ---------------------------------------------------------------------------------------------- host names
# Names of this machine, each source loaded when it is first asked.


def test_names_of_this_machine() -> None:
    names = HostNames()
    assert names.interface(1) == "lo"
    assert names.interface(1 << 30) is None
    assert names.network_namespace(1) is None
    assert names.cgroup(1 << 40, "") == ""
    root = os.stat("/sys/fs/cgroup").st_ino
    assert names.cgroup(root, "no such hierarchy") == ""


# ---------------------------------------------------------------------------------------------- fingerprints
# pytrace.runtime.machine.fingerprints: what a cached script depends on is noticed when it changes.


def test_machine_facts_hold() -> None:
    assert fingerprints.still_true([fingerprints.kernel_fact(), fingerprints.boot_fact(), fingerprints.modules_fact()])


def test_facts_survive_json() -> None:
    assert fingerprints.still_true([tuple(json.loads(json.dumps(fingerprints.kernel_fact())))])


def test_another_kernel_is_noticed() -> None:
    fact = fingerprints.kernel_fact()
    assert not fingerprints.still_true([(*fact[:3], "9.9.9", *fact[4:])])


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("one")
    fact = fingerprints.file_fact(str(path))
    assert fingerprints.still_true([fact])
    path.write_text("other")
    assert not fingerprints.still_true([fact])
    path.unlink()
    assert not fingerprints.still_true([fact])


def test_a_file_that_appears_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "later"
    fact = fingerprints.file_fact(str(path))
    assert fingerprints.still_true([fact])
    path.touch()
    assert not fingerprints.still_true([fact])


def test_events_of_other_tracers_are_no_tracepoints(tmp_path: Path) -> None:
    """They come and go with these: a pattern must not find them, and what was compiled stays good."""
    path = tmp_path / "available_events"
    path.write_text("sched:sched_switch\nftrace:print\n")
    fact = fingerprints.tracepoints_fact(str(tmp_path))
    assert fingerprints.still_true([fact])
    path.write_text("pytrace_4711:p4711_0\nsched:sched_switch\nftrace:print\n")
    assert fingerprints.still_true([fact])
    assert Tracepoints(str(tmp_path), lambda kind, name: None).match("*", "*") == [("sched", "sched_switch")]
    path.write_text("mine:one\nsched:sched_switch\nftrace:print\n")
    assert not fingerprints.still_true([fact])


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/a:/b")
    fact = fingerprints.environment_fact("PATH")
    assert fingerprints.still_true([fact])
    monkeypatch.setenv("PATH", "/b:/a")
    assert not fingerprints.still_true([fact])


def test_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fact = fingerprints.process_fact(child.pid)
    assert fingerprints.still_true([fact])
    child.communicate(b"\n")
    assert not fingerprints.still_true([fact])
    assert fingerprints.still_true([fingerprints.process_fact(os.getpid())])


def test_unknown_kinds_never_hold() -> None:
    assert not fingerprints.still_true([("never",)])
    assert not fingerprints.still_true([("from-another-version", "x")])


def test_lists_are_kept_under_their_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[dict[str, list[str]]] = []

    def make() -> dict[str, list[str]]:
        made.append({"": ["a", "b"], "mod": ["c"], "empty": [], "last": ["\udcff"]})
        return made[-1]

    first = fingerprints.kept_lists("names", ("1",), make)
    assert fingerprints.kept_lists("names", ("1",), make) == first == made[0]
    assert len(made) == 1
    fingerprints.kept_lists("names", ("2",), make)
    assert len(made) == 2
    fingerprints.kept_lists("names", ("1",), make)
    assert len(made) == 3, "one file holds the lists of one stamp"
    (tmp_path / "pytrace" / "facts" / "names").write_bytes(b"")
    assert fingerprints.kept_lists("names", ("1",), make) == first


def test_lists_without_a_place_to_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fingerprints.kept_lists("names", ("1",), lambda: {"": ["a"]}) == {"": ["a"]}


@pytest.mark.parametrize("fact", [(), ("file",), ("process", "x"), ("process",), ("files", "/"), ("file", "a\0b")])
def test_facts_of_another_form_never_hold(fact: tuple[str, ...]) -> None:
    assert not fingerprints.still_true([fact])
