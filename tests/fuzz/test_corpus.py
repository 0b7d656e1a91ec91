"""The kept corpus and the seeds of each fuzz target are parsed as ordinary tests: what was found stays mended."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import table
from tests.fuzz.corpus import CORPUS, kept
from tests.fuzz.mutation import mutated
from tests.fuzz.target import HarmError, Target, attempt

MOST_BYTES = 512 << 10
IN_PROCESS = [name for name in table.NAMES if name != "hostile_processes"]
"""Its processes have what this one has mapped, LLVM too: ``tests/runtime/test_hostile_processes.py`` runs it in one of
their own, for a quarter of the time."""


@pytest.mark.parametrize("name", IN_PROCESS)
def test_kept_inputs(name: str) -> None:
    target = table.find(name)
    for file, data in [("empty", b""), *kept(name), *((f"seed {at}", seed) for at, seed in enumerate(target.seeds()))]:
        try:
            attempt(target, data)
        except Exception as error:  # noqa: BLE001 - any undocumented one is a defect
            pytest.fail(f"{name}/{file}: {type(error).__name__}: {error} (python -m tests.fuzz.show {name} FILE)")


SECONDS = 0.1
"""Processor time for changed inputs of one target."""


@pytest.mark.parametrize("name", IN_PROCESS)
def test_changed_inputs(name: str, request: pytest.FixtureRequest) -> None:
    """A little fuzzing, the same each time; --random-seed chooses other changes."""
    target, choose = table.find(name), Random(f"{name} {request.config.getoption('--random-seed')}")
    words = [word for word in target.words() if word]
    known = [data for _, data in kept(name)] + list(target.seeds()) or ["\0".join(words[:8]).encode("utf-8", "replace")]
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        data = mutated(choose.choice(known), words, choose)[: target.length]
        try:
            attempt(target, data)
        except Exception as error:  # noqa: BLE001 - any undocumented one is a defect
            pytest.fail(f"{name}: {type(error).__name__}: {error} for {data!r}")


def test_the_corpus_is_of_targets_and_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(table.NAMES)
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def test_every_module_of_parsers_has_the_targets_of_the_table() -> None:
    for module, names in table.MODULES.items():
        found = __import__(f"tests.fuzz.parsers.{module}", fromlist=["TARGETS"]).TARGETS
        assert tuple(found) == names


def _writes(data: bytes) -> None:
    with open(data.decode(), "w"):
        pass


def test_a_parser_that_writes_is_found(tmp_path: Path) -> None:
    with pytest.raises(HarmError):
        attempt(Target("writes", _writes), f"{tmp_path}/file".encode())


def test_other_errors_than_the_documented_ones_are_found() -> None:
    def fails(data: bytes) -> None:
        raise KeyError(data)

    with pytest.raises(KeyError):
        attempt(Target("fails", fails), b"x")
    attempt(Target("fails", fails, (KeyError,)), b"x")
