"""pytrace.runtime.symbols.compiled_code: names of compiled code by the time at which an address was seen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytrace.runtime.host.procfs import Mapping
from pytrace.runtime.symbols import perf_map
from pytrace.runtime.symbols.address_space import AddressSpace
from pytrace.runtime.symbols.compiled_code import CompiledCode
from tests.runtime.symbols.test_jit_dump import header, load

PID = 1 << 22
CODE = Mapping(0x1000, 0x9000, 0, 0, 0, "")


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddressSpace:
    """A process with code and a jitdump file."""
    path = tmp_path / "jit-7.dump"
    path.write_bytes(header())
    monkeypatch.setattr(perf_map, "_candidates", lambda _pid: ([str(tmp_path / "perf.map")], {path.stat().st_uid}))
    space = AddressSpace(PID)
    space.root, space.ended = "", True
    space.add(CODE)
    space.add(Mapping(0x20000, 0x21000, 0, 1, 5, str(path)))
    return space


def compile_code(space: AddressSpace, name: str, start: int = 0x1000) -> int:
    """Add a function to the file. Returns its time."""
    moment = time.monotonic_ns()
    with open(space.mappings[1].path, "ab") as file:
        file.write(load(start, 0x40, name, moment=moment))
    return moment


def shown(code: CompiledCode, space: AddressSpace, address: int = 0x1010) -> str:
    frame = code.frame(PID, space, CODE, address - 1, True)
    return f"{frame.name}+{frame.offset}"


def test_events_have_the_names_since_the_ring_buffer_was_empty(
    space: AddressSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytrace.runtime.symbols.compiled_code._SLACK", 0)
    code = CompiledCode({})
    compile_code(space, "first")
    code.drained(time.monotonic_ns())
    assert shown(code, space) == "first+16"
    compile_code(space, "second")
    assert shown(code, space) == "first or second+16"
    code.drained(time.monotonic_ns())
    assert shown(code, space) == "second+16"


def test_keys_have_the_names_of_their_period(space: AddressSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.runtime.symbols.compiled_code._SLACK", 0)
    code = CompiledCode({})
    times = [compile_code(space, name) for name in ("first", "second", "third", "fourth")]
    after = time.monotonic_ns()
    periods = {(PID, 0x1010): (times[1], times[1]), (PID, 0x1011): (times[1], times[2])}
    code.keyed(periods, after)
    assert shown(code, space) == "second or fourth+16", "it may be that of an event"
    code.keyed(periods, after, over=True)
    assert shown(code, space) == "second+16"
    assert shown(code, space, 0x1011) == "second or third+17"
    assert shown(code, space, 0x1012) == "fourth+18", "it came after the search"
    code.keyed({(PID, 0x1010): (times[0], after)}, after)
    assert shown(code, space) == "[JIT]+16", "too many"


def test_what_is_followed(space: AddressSpace, tmp_path: Path) -> None:
    code = CompiledCode({})
    assert not code.follow(space), "it has named nothing"
    compile_code(space, "first")
    assert code.follow(space)
    plain = AddressSpace(PID)
    plain.ended = True
    plain.add(Mapping(0x1000, 0x2000, 0, 1, 5, "/usr/bin/plain"))
    (tmp_path / "perf.map").write_text("1000 10 f\n")
    assert not code.follow(plain)
    plain.add(CODE)
    assert code.follow(plain)
