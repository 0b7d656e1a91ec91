"""What the rest of a run needs, by script and options."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.config import Config
from pytrace.core.event_layout import EventSpec, Location, NoStaticPart
from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.core.types import UINT64, InterfaceName, KSym, Stack, Type, Username, USym
from pytrace.runtime.abi import bpf, perf
from pytrace.runtime.abi.privileges import CAPABILITIES
from pytrace.runtime.abi.seccomp import Family
from pytrace.runtime.session import confinement
from pytrace.runtime.session.confinement import Needs, needs

PLACE = Location("x.bt", 1, 1)


def of(*values: Type, kind: str = "printf", **options: Any) -> Needs:
    """Needs of a script that prints values of these types."""
    events = (EventSpec(0, kind, values, NoStaticPart(), PLACE),)
    legacy, on_cpus = options.pop("legacy", False), options.pop("on_cpus", False)
    return needs(Manifest((), (), events, (), Config()), RunOptions(**options), legacy=legacy, on_cpus=on_cpus)


def test_a_script_that_prints_numbers_needs_nothing() -> None:
    assert of(UINT64) == Needs()
    assert of(UINT64, output="out", format="json") == Needs()


@pytest.mark.parametrize("value", [USym(), Stack(True, 4)])
def test_user_addresses_need_other_processes(value: Type) -> None:
    wanted = of(value)
    assert set(wanted.capabilities) == {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE"}
    assert wanted.all_files == confinement.USER_SYMBOLS


@pytest.mark.parametrize("value", [KSym(), Stack(False, 4)])
def test_kernel_addresses_need_the_symbols(value: Type) -> None:
    wanted = of(value, debuginfo=("/debug",))
    assert set(wanted.capabilities) == {"CAP_SYSLOG"}
    assert {"/boot", "/debug"} <= set(wanted.read)
    assert not wanted.all_files


def test_debug_files_come_from_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert of(USym()).families == []
    monkeypatch.setenv("DEBUGINFOD_URLS", "https://debuginfod.example")
    wanted = of(USym())
    assert set(wanted.families) == set(Family)
    assert f"{tmp_path}/debuginfod_client" in wanted.write
    assert of(Stack(True, 4)).families == wanted.families
    assert of(UINT64, KSym()).families == [], "servers are not asked for the kernel"


def test_databases_of_names() -> None:
    assert of(Username()).families == [Family.UNIX]
    assert of(InterfaceName()).families == [Family.NETLINK]
    elsewhere = of(InterfaceName(), netns="blue")
    assert elsewhere.everything == confinement.NETWORK_NAMESPACE
    assert set(elsewhere.capabilities) == {"CAP_SYS_ADMIN"}


def test_functions_that_reach_out() -> None:
    assert of(kind="system").everything == confinement.SYSTEM
    wanted = of(kind="cat")
    assert wanted.all_files == confinement.CAT
    assert "CAP_SYSLOG" in wanted.capabilities
    assert of(kind="skboutput").existing
    assert of(legacy=True).existing == confinement.OLD_PROBES
    assert of(command="ls").signals
    assert of(on_cpus=True).cpu_events
    assert set(of(on_cpus=True).capabilities) == {"CAP_PERFMON"}


@pytest.mark.parametrize(("measures", "missed"), [(True, {}), (False, {"CAP_SYS_ADMIN": confinement.CPUS})])
def test_kernels_that_reserve_perf_events(monkeypatch: pytest.MonkeyPatch, measures: bool, missed: object) -> None:
    """As Debian's do: then CAP_PERFMON is not enough for a CPU that comes online."""
    monkeypatch.setattr(perf, "measures_cpus", lambda: measures)
    monkeypatch.setattr(bpf, "map_info", lambda _: None)
    loaded: Any = SimpleNamespace(manifest=Manifest((), (), (), (), Config()), map_fd=lambda _: 0)
    assert confinement._missed(of(on_cpus=True), [], loaded) == missed
    assert confinement._missed(of(), [], loaded) == {}


def test_output_files_are_replaced_in_their_directories(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/out")
    wanted = of(save=str(tmp_path / "link"), save_every=(1.0, str(tmp_path / "each")))
    assert wanted.write == [f"{tmp_path}/real", f"{tmp_path}/each"]
    assert not wanted.existing
    assert of(format="folded", output=str(tmp_path / "x")).write == [str(tmp_path)]
    assert of(save=os.devnull).existing


def test_bits() -> None:
    assert confinement.mask(["CAP_SYS_PTRACE", "CAP_KILL"]) == 1 << 19 | 1 << 5
    most = of(Stack(True, 1), Stack(False, 1), kind="cat", command="x", legacy=True)
    assert {*most.capabilities, *of(InterfaceName(), netns="x").capabilities} <= CAPABILITIES.keys()


def test_modules_can_be_imported_later() -> None:
    places = confinement.installation()
    assert os.path.realpath(sys.prefix) in places
    assert os.path.dirname(os.path.realpath(os.__file__)) in places
    assert str(Path(__file__).resolve().parents[3]) in places
    assert "/" not in places
