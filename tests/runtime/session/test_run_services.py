"""Which services a run has."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.config import Config
from pytrace.core.manifest import Manifest, MapSpec
from pytrace.core.options.process_filters import ProcessFilters
from pytrace.core.options.run_options import Address, RunOptions
from pytrace.core.types import UINT64, Count, Stack, StackMode, Tuple
from pytrace.runtime.session import run_services
from tests.support.encode import Run
from tests.support.fake_run import FakeSymbols


def services(
    options: RunOptions, command: tuple[int, ...] = (), config: Config | None = None, *maps: MapSpec
) -> list[str]:
    """Names of the services that a run asks for."""
    loaded = SimpleNamespace(manifest=Manifest((), maps, (), (), config or Config()), maps={})
    nothing = SimpleNamespace(take=None, last=None, warn=None, tell=None, descriptors=command)
    run = SimpleNamespace(
        options=options, loaded=loaded, symbols=FakeSymbols(), renderer=None, snapshots=nothing, notices=nothing,
        command=nothing, loop=None,
    )  # fmt: skip
    with ExitStack() as stack:
        wanted = run_services.optional_services(cast(Any, run), (), stack)
        return [type(service).__name__ for service in wanted]


def test_most_runs_have_none() -> None:
    assert services(RunOptions()) == []


@pytest.mark.parametrize(
    ("options", "command", "name"),
    [
        (RunOptions(save="x"), (), "Saving"),
        (RunOptions(save_every=(1.0, "x")), (), "Saving"),
        (RunOptions(format="folded"), (), "Saving"),
        (RunOptions(metrics=Address("127.0.0.1", 0)), (), "Metrics"),
        (RunOptions(), (7,), "RunEnd"),
        (RunOptions(duration=1.0), (), "RunEnd"),
        (RunOptions(filters=ProcessFilters((os.getpid(),))), (), "RunEnd"),
        (RunOptions(filters=ProcessFilters(exec_wait="ls")), (), "RunEnd"),
    ],
)
def test_options_ask_for_services(options: RunOptions, command: tuple[int, ...], name: str) -> None:
    assert services(options, command) == [name]


def test_a_dry_run_saves_nothing(tmp_path: Path) -> None:
    assert services(RunOptions(save=str(tmp_path / "x"), dry_run=True)) == []


def test_maps_whose_stacks_show_no_functions() -> None:
    run = Run()
    shown = [Stack(True, 4), Stack(True, 4, StackMode.PERF), Tuple((UINT64, Stack(True, 4)))]
    others = [Stack(False, 4), Stack(True, 4, StackMode.RAW), Stack(True, 4, StackMode.BUILD_ID), UINT64]
    specs = [run.keyed(f"@{at}", kind, Count(), {}) for at, kind in enumerate([*shown, *others])]
    assert [run_services.has_user_stacks(spec) for spec in specs] == [True] * len(shown) + [False] * len(others)


@pytest.mark.parametrize(("mode", "reads"), [(StackMode.BPFTRACE, True), (StackMode.RAW, False)])
@pytest.mark.parametrize("save", [None, "x.pts"])
def test_maps_of_stacks_are_searched_ahead(mode: StackMode, save: str | None, *, reads: bool) -> None:
    spec = Run().keyed("@", Stack(True, 4, mode), Count(), {})
    config = Config(show_debug_info=False, print_maps_on_exit=False)
    assert ("ReadingAhead" in services(RunOptions(save=save), (), config, spec)) == reads
    assert services(RunOptions(save=save, dry_run=True), (), config, spec) == []
