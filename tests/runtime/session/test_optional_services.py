"""Services that only some runs have."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.config import Config
from pytrace.core.manifest import Manifest
from pytrace.core.options.process_filters import ProcessFilters
from pytrace.core.options.run_options import Address, RunOptions
from pytrace.core.types import UINT64, Count, Stack, StackMode, Tuple
from pytrace.runtime.session import optional_services
from pytrace.runtime.session.services.service import Service
from tests.support.encode import Run


def services(options: RunOptions, command: tuple[int, ...] = ()) -> list[Service]:
    """The services of a run other than reading ahead."""
    nothing = cast(Any, None)
    with ExitStack() as stack:
        return [
            *optional_services.saving(options, (), nothing, nothing),
            *optional_services.metrics(options, Config(), nothing, nothing, stack),
            *optional_services.run_end(options, command, nothing, nothing, stack),
        ]


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
    assert [type(service).__name__ for service in services(options, command)] == [name]


def test_a_dry_run_saves_nothing(tmp_path: Path) -> None:
    assert services(RunOptions(save=str(tmp_path / "x"), dry_run=True)) == []


def test_maps_whose_stacks_show_no_functions() -> None:
    run = Run()
    shown = [Stack(True, 4), Stack(True, 4, StackMode.PERF), Tuple((UINT64, Stack(True, 4)))]
    others = [Stack(False, 4), Stack(True, 4, StackMode.RAW), Stack(True, 4, StackMode.BUILD_ID), UINT64]
    specs = [run.keyed(f"@{at}", kind, Count(), {}) for at, kind in enumerate([*shown, *others])]
    assert [optional_services.has_user_stacks(spec) for spec in specs] == [True] * len(shown) + [False] * len(others)


@pytest.mark.parametrize(
    ("mode", "config", "reads"),
    [
        (StackMode.BPFTRACE, Config(), True),
        (StackMode.RAW, Config(), False),
        (StackMode.BPFTRACE, Config(show_debug_info=False), False),
        (StackMode.BPFTRACE, Config(print_maps_on_exit=False), False),
    ],
)
@pytest.mark.parametrize("save", [None, "x.pts"])
def test_lines_are_read_ahead_only_where_maps_will_show_them(
    mode: StackMode, config: Config, save: str | None, *, reads: bool
) -> None:
    run = Run()
    run.keyed("@", Stack(True, 4, mode), Count(), {})
    loaded = cast(Any, SimpleNamespace(manifest=Manifest((), tuple(run.maps), (), (), config), maps={}))
    saved = save is not None and mode is StackMode.BPFTRACE and config.show_debug_info
    made = optional_services.reading_ahead(loaded, RunOptions(save=save), cast(Any, None))
    assert bool(made) == (reads or saved)
    assert optional_services.reading_ahead(loaded, RunOptions(save=save, dry_run=True), cast(Any, None)) == []
