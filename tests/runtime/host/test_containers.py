"""Containers by id: the names that their managers give to cgroups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.host import containers
from pytrace.runtime.host.containers import by_name, in_hierarchies, processes

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
    assert in_hierarchies(ID[:12], [str(tmp_path)]) == {ID: [f"{tmp_path}/{path}"]}
    assert in_hierarchies(ID[1:12], [str(tmp_path)]) == {}


@pytest.mark.parametrize(
    "name", [f"pod{POD}", f"kubepods-burstable-pod{POD.replace('-', '_')}.slice", f"pod{POD.replace('-', '')}"]
)
def test_pods(tmp_path: Path, name: str) -> None:
    (tmp_path / "kubepods" / name / f"cri-containerd-{ID}.scope").mkdir(parents=True)
    whole = POD.replace("-", "")
    assert in_hierarchies(containers.plain(POD), [str(tmp_path)]) == {whole: [f"{tmp_path}/kubepods/{name}"]}


def test_an_id_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "unified_mounts", lambda: [str(tmp_path)])
    for identity in (ID, OTHER):
        (tmp_path / f"docker-{identity}.scope").mkdir()
    with pytest.raises(TraceError, match="2 containers have an id that begins with '0123456789ab'") as caught:
        containers.cgroups("0123456789ab")
    assert ID in caught.value.hints[0]
    assert OTHER in caught.value.hints[0]
    assert containers.cgroups(ID[:13]) == [f"{tmp_path}/docker-{ID}.scope"]


def test_what_is_no_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "unified_mounts", lambda: [str(tmp_path)])
    for wanted, part in (("0123456", "there is no container"), ("web", "there is no container"), (ID, "no running")):
        with pytest.raises(TraceError, match=part):
            containers.cgroups(wanted)


def test_names_of_docker_and_podman(tmp_path: Path) -> None:
    (tmp_path / "docker" / ID).mkdir(parents=True)
    (tmp_path / "docker" / ID / "config.v2.json").write_text(json.dumps({"ID": ID, "Name": "/web"}))
    (tmp_path / "docker" / "broken").mkdir()
    (tmp_path / "podman" / "overlay-containers").mkdir(parents=True)
    rows = [{"id": OTHER, "names": ["db", "database"]}]
    (tmp_path / "podman" / "overlay-containers" / "containers.json").write_text(json.dumps(rows))
    places = (str(tmp_path / "docker"), str(tmp_path / "podman"))
    assert [by_name(name, *places) for name in ("web", "database", "we")] == [ID, OTHER, ""]


def test_a_container_in_a_cgroup_of_version_1_is_told_by_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, text in (("12", f"4:memory:/docker/{ID}\n0::/\n"), ("7", f"1:cpu:/docker/{ID}/x\n"), ("8", "0::/\n")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    assert processes(ID[:12], str(tmp_path)) == [7, 12]
    monkeypatch.setattr(containers, "unified_mounts", list)
    monkeypatch.setattr(containers, "processes", lambda _identity: [7, 12])
    with pytest.raises(TraceError, match="is one of version 1") as caught:
        containers.cgroups(ID[:12])
    assert caught.value.hints == ("-p 7,12 --follow traces its processes, and what they start",)
