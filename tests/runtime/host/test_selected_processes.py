"""Users, cgroups and names of threads that options name."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.host import selected_processes as module


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
    monkeypatch.setattr(module, "unified_mounts", lambda: [str(root)])
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
    monkeypatch.setattr(module, "unified_mounts", list)
    with pytest.raises(TraceError, match="needs a mounted cgroup version 2 hierarchy"):
        module.cgroups(["app.slice"])


def test_network_namespaces() -> None:
    assert module.namespace("/proc/self/ns/net") == os.stat("/proc/self/ns/net").st_ino
    with pytest.raises(TraceError, match="is not a network namespace"):
        module.namespace("/proc/self/ns/mnt")
