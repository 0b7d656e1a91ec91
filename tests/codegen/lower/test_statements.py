"""Statements, and stacks that they keep."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.manifest import MapType
from pytrace.core.types import CHUNK_FRAMES, CHUNK_LINK, CHUNK_MAP, CHUNK_SIZE, TRUNCATED
from pytrace.render.values import chunked_stack
from tests.codegen.running import helpers, machine, printed, ran
from tests.support.bpf_machine import BpfMap, Machine
from tests.support.facts import RecordedKernel

VALUES = [
    ("if (pid == 4321) { print(1); } else { print(2); }", 1),
    ("if (pid != 4321) { print(1); } else if (tid == 1) { print(2); } else { print(3); }", 3),
    ("$a = 1; { $a = 2; } print($a);", 2),
    ("let $a; print($a);", 0),
    ("let $a: uint8 = (uint8)pid; print($a);", 225),
    ("$a = 1; unroll(5) { $a += $a; } print($a);", 32),
    ("$a = 0; unroll(5) { if ($a == 3) { break; } $a++; } print($a);", 3),
    ("$a = 0; unroll(4) { $a++; if ($a > 2) { continue; } @ += 1; } print(@ + 0);", 2),
    ("_ = pid; print(1);", 1),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_return_and_exit_end_the_probe() -> None:
    found = ran("begin { print(1); if (pid == 4321) { return; } print(2); }")
    assert found.printed() == [1]
    found = ran("begin { if (pid) { exit(3); } print(1); }")
    assert list(found.values()) == [("exit", [3])]


def test_an_exit_that_finds_no_room_leaves_its_status_in_memory() -> None:
    found = machine("begin { exit(7); }", ring_full=True)
    found.run()
    session = found.script.manifest.session
    assert session is not None
    where = found.section(session.section)
    words = [found.load(where + at, 8) for at in range(0, len(found.regions[where >> 32]) - 7, 8)]
    assert any(word & 0xFF == 7 or word & 0xFF == 8 for word in words), words


def test_predicates() -> None:
    assert printed("print(1);") == [1]
    for predicate, sent in (("pid == 4321", 1), ("pid == 1", 0)):
        assert len(ran(f"begin /{predicate}/ {{ print(1); }}").events) == sent


BODY = "$key = (pid, tid); @[kstack, $key] = count(); @x[str(1)] = hist(nsecs); for ($i : 0..3) { $key.0; }"


@pytest.mark.parametrize(
    "text",
    [
        f"kprobe:vfs_read /pid == 1/ {{ {BODY} }}",
        f"kprobe:vfs_read /pid == 1 && uid == 7/ {{ {BODY} }}",
        f"kprobe:vfs_read {{ if (pid == 1) {{ {BODY} }} }}",
        f"kprobe:vfs_read /pid == 1/ {{ if (nsecs == 1) {{ {BODY} }} }}",
        f"uprobe:/bin/app:work /pid == 1/ {{ {BODY} }}",
        f"profile:hz:99 /pid == 1/ {{ {BODY} }}",
    ],
)
def test_nothing_is_set_up_before_a_condition_that_does_not_hold(text: str) -> None:
    kernel = RecordedKernel() if text.startswith("uprobe") else None
    assert helpers(ran(text, kernel)) == [118, 14], "the watchdog's clock, and the process id"


def test_conditions_around_a_whole_probe() -> None:
    inner = "if (tid > 0) { $b = 2; @ = $b; @n[pid] = count(); if (@ == 3) { @ = 9; } }"
    found = ran(f"kprobe:vfs_read /pid > 1/ {{ {inner} }}")
    assert found.slot("@") == 2
    assert found.entries("@n")
    assert not ran(f"kprobe:vfs_read /pid == 1/ {{ {inner} }}").slot("@")


def test_pairs_of_a_map() -> None:
    found = ran('begin { @m["a", 1] = 5; @m["b", 2] = 6; for ($kv : @m) { print($kv); } }')
    assert found.printed() == [((b"a", 1), 5), ((b"b", 2), 6)]


@pytest.mark.parametrize(
    ("call", "value"), [("count()", 2), ("sum(5)", 10), ("max(7)", 7), ("min(7)", 7), ("avg(3)", 3), ("(int8)-1", -1)]
)
def test_values_of_all_kinds(call: str, value: int) -> None:
    found = ran(f"begin {{ @m[1] = {call}; @m[1] = {call}; for ($kv : @m) {{ print($kv.1); }} }}")
    assert found.printed() == [value]


@pytest.mark.parametrize(("body", "rounds"), [("break;", 1), ("continue; @n++;", 3), ("return;", 1)])
def test_jumps(body: str, rounds: int) -> None:
    found = ran(f"begin {{ @m[1] = 1; @m[2] = 2; @m[3] = 3; for ($kv : @m) {{ @r++; if (pid) {{ {body} }} }} }}")
    assert found.slot("@r") == rounds


def test_conditions_of_loops_and_their_variables() -> None:
    found = ran("begin { $n = 3; for ($i : 0..$n) { $n = 10; print($i); } }")
    assert found.printed() == [0, 1, 2]
    assert ran("begin { $n = 0; while ($n++ < 3) { @ = $n; } print($n); }").printed() == [4]
    assert ran('begin { $s = "a"; @m[1] = 1; for ($kv : @m) { $s = "bc"; } print($s); }').printed() == [b"bc"]


# --------------------------------------------------------------------------------------------------------- stack chunks

GET_STACK = 67
LIMIT = 300


def walked(*stacks: list[int]) -> tuple[Machine, dict[bytes, bytes]]:
    """A program that ran once for each of these stacks, and the chunks that it stored."""
    found = machine(f"config = {{ max_stack_depth = {LIMIT} }} kprobe:f {{ @[kstack] = count(); }}")
    found.maps[found.names[CHUNK_MAP]] = BpfMap(MapType.HASH, CHUNK_LINK, CHUNK_SIZE)
    for depth in found.script.manifest.stack_depths:
        found.write(found.section(depth.section) + depth.offset, struct.pack("<QQ", depth.limit, 1024))

    def get_stack(_context: int, target: int, size: int, *_: int) -> int:
        frames = given[0]
        data = struct.pack(f"<{len(frames)}Q", *frames)[: size & 0xFFFFFFFF]
        found.write(target, data.ljust(size & 0xFFFFFFFF, b"\0"))
        return len(data)

    found.helpers[GET_STACK] = get_stack
    given = list(stacks)
    while given:
        found.run()
        given.pop(0)
    chunks = found.maps[found.names[CHUNK_MAP]].entries
    return found, {key: found.read(place, CHUNK_SIZE) for (key, _), place in chunks.items()}


@pytest.mark.parametrize("depth", [1, 2, 31, 32, 33, 63, 64, 65, 299, 300, 301, 400])
def test_frames_come_back(depth: int) -> None:
    frames = [1000 + 7 * index for index in range(depth)]
    found, chunks = walked(frames)
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    assert len(key) == 24
    assert len(chunks) == -(-min(depth, LIMIT) // CHUNK_FRAMES)
    process, read, error = chunked_stack(LIMIT, chunks.get)(key, 0)
    mark = [TRUNCATED] if depth > LIMIT else []
    assert (process, list(read), error) == (0, frames[:LIMIT] + mark, 0)


def test_callers_are_stored_once() -> None:
    """Chunks are counted from the root: one more call is one more chunk at most."""
    root = list(range(5000, 5000 + 4 * CHUNK_FRAMES))
    found, chunks = walked(*([1, *root[-length:]] for length in (128, 127, 96, 96)), [2, *root])
    assert len(found.entries("@")) == 4
    assert sorted(found.entries("@").values()) == [1, 1, 1, 2]
    # Of 4 whole chunks, innermost frames 1 and 2 above them, and of 95 and 97 frames' last chunks.
    assert len(chunks) < 4 + 4 * 2


def test_a_chunk_that_is_missing() -> None:
    """The frames before it are shown, with the mark."""
    frames = list(range(100, 100 + 80))
    found, chunks = walked(frames)
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    last = next(digest for digest, chunk in chunks.items() if not any(chunk[:16]))
    del chunks[last]
    assert list(chunked_stack(LIMIT, chunks.get)(key, 0)[1]) == [*frames[:48], TRUNCATED]
    assert chunked_stack(LIMIT, lambda _digest: None)(key, 0)[1] == (TRUNCATED,)
