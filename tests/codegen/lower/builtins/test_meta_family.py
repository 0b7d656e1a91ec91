"""The configuration as a record."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from elftools.elf.elffile import ELFFile
from msgspec.structs import asdict

from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, Config
from tests.codegen.running import compiled, machine, printed


def test_all_keys() -> None:
    values = asdict(Config())
    (found,) = printed("print(config());")
    assert found == tuple(item.encode() if isinstance(item, str) else item for item in values.values())


@pytest.mark.parametrize("key", ["license", "max_strlen"])
def test_one_key_of_the_record(key: str) -> None:
    wanted = asdict(Config())[key]
    assert printed(f"$c = config(); print($c.{key});") == [wanted.encode() if isinstance(wanted, str) else wanted]


# fmt: off
LISTS = [
    ([5], [4, 5, 6]),
    (range(0, 280, 7), [-7, -1, 0, 1, 6, 7, 8, 139, 140, 141, 273, 274, 280, 2**31 - 1]),
    (range(-300, 4000, 13), [-313, -301, -300, -299, -1, 0, 12, 25, 3990, 3989, 4003]),
    ([2**31 - 1, -(2**31)], [2**31 - 1, -(2**31), 0, -1]),
    ([3, 3, 2, 1], [0, 1, 2, 3, 4]),
]
# fmt: on


@pytest.mark.parametrize(("entries", "values"), LISTS)
def test_one_of_numbers(entries: Sequence[int], values: Sequence[int]) -> None:
    listed = ",".join(map(str, entries))
    body = "".join(f'print(one_of((int32)cpu + ({value}), "{listed}"));' for value in values)
    assert printed(body) == [value in entries for value in values]


def code(script: CompiledScript) -> int:
    """Bytes of code of a script's programs."""
    sections = ELFFile(io.BytesIO(script.elf)).iter_sections()
    return sum(section["sh_size"] for section in sections if section.name.startswith("pytrace/"))


def test_one_of_texts() -> None:
    lists = ["a,b", "task", "a, task ,b", "tas", "task1", "", "TASK"]
    found = printed("".join(f'print(one_of(comm, "{text}"));' for text in lists), comm=b"task")
    assert found == [False, True, True, False, False, False, False]


def test_a_long_list_is_searched_by_halves() -> None:
    listed = ",".join(str(at * 7) for at in range(1000))
    found = machine(f'begin {{ print(one_of(pid, "{listed}")); }}')
    found.run()
    assert found.steps < 150


def test_an_option_that_is_empty_costs_nothing() -> None:
    option = 'getopt("port", "")'
    plain = code(compiled("rawtracepoint:sched_switch { @ = count(); }"))
    probe = f"rawtracepoint:sched_switch /{option} == \"\" || one_of(pid, {option})/ {{ @ = count(); }}"
    assert code(compiled(probe)) == plain > 0
    assert code(compiled(probe, options=CompileOptions(named=(("port", "80,443"),)))) > plain
