"""Programs of Go: what its functions get and return, and stacks, compared with what the program says itself."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import need
from tests.support.server import Server

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="registers are those of x86-64"),
    pytest.mark.needs("go"),
]

CALLS = 4 * 50 * 101
LIMIT = 100
SOURCE = Path(__file__).parent.parent / "programs" / "calls.go"
GOROUTINES = SOURCE.with_name("goroutines.go")
WAYS = {"plain": (), "slow": ("-gcflags=-N -l",), "stripped": ("-ldflags=-s -w",)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The program, by the way in which it was compiled."""
    need("uprobe")
    folder = tmp_path_factory.mktemp("go")
    return {name: build(SOURCE, folder, name, *flags) for name, flags in WAYS.items()}


def build(source: Path, folder: Path, name: str, *flags: str) -> str:
    """The path of a program that is one source file."""
    shutil.copy(source, folder / "main.go")
    (folder / "go.mod").write_text("module example.com/calls\n\ngo 1.18\n")
    command = ["go", "build", *flags, "-o", name, "."]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "GOTOOLCHAIN": "local"}, timeout=LIMIT)
    return str(folder / name)


def rows(server: Server, script: str, program: str) -> list[Any]:
    """What a script prints while the program runs."""
    result = server.run(("-f", "json", "-e", script.replace("BIN", program), "-c", program), timeout=60)
    assert result.status == 0, result
    found = []
    for line in result.stdout.splitlines():
        row = json.loads(line) if line.startswith("{") else {}
        if row.get("type") in ("value", "map"):
            found.append(row["data"])
    return found


ARGUMENTS = r"""
uprobe:BIN:main.greet { print((args.name, args.n, args.loud)); }
uretprobe:BIN:main.greet { print(retval); }
uprobe:BIN:"main.(*Order).Total" { print((args.o.ID, str(args.o.Name.str, args.o.Name.len), args.k, args.rate)); }
uretprobe:BIN:"main.(*Order).Total" { print(retval); }
uprobe:BIN:main.small { print((args.in.A, args.s.len, *args.s.array, args.e, args.last)); }
uprobe:BIN:main.many { print((args.a, args.i, args.j, args.k, args.s)); }
uprobe:BIN:main.blank { print((args.n, args.m)); }
"""


FLOATS = r"""
uprobe:BIN:main.mixed { print((args.m.N, str(args.m.Name.str, args.m.Name.len), args.m.K, args.n, args.one[0].K)); }
uprobe:BIN:main.both { print(args.n); }
uretprobe:BIN:main.both { print((retval.N, str(retval.Name.str, retval.Name.len), retval.K)); }
uprobe:BIN:"main.larger[go.shape.int*]" { print((args.a, args.b)); }
uretprobe:BIN:"main.larger[go.shape.string*]" { print(retval); }
uprobe:BIN:main.Pair.plus { print((args.p.A, str(args.p.B.str, args.p.B.len), args.n)); }
uretprobe:BIN:main.Pair.plus { print((retval.A, str(retval.B.str, retval.B.len))); }
uprobe:BIN:main.vary { print((args.first, args.rest.len)); }
uprobe:BIN:main.floats { print(args.z); }
uprobe:BIN:main.main.func3 { print((args.i, args.text)); }
"""


@pytest.mark.parametrize("way", ["plain", "slow"])
def test_what_is_in_other_registers_than_floating_point_numbers(
    server: Server, programs: dict[str, str], way: str
) -> None:
    """Structs with both, generics (which have a hidden parameter), methods on values, variadics and closures."""
    assert rows(server, FLOATS, programs[way]) == [
        [-5, "mixed", 77, 42, 78],
        8, [8, "both", 9],
        [3, 4], "more",
        [5, "pair", 3], [8, "pair!"],
        [1, 2],
        99,
        [7, "closed"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("probe", "value"),
    [
        ("uprobe:BIN:main.mixed", "args.m.Price"),
        ("uprobe:BIN:main.mixed", "args.at"),
        ("uprobe:BIN:main.mixed", "args.c"),
        ("uprobe:BIN:main.mixed", "args.one.Price"),
        ("uretprobe:BIN:main.mixed", "retval"),
        ("uretprobe:BIN:main.both", "retval.Price"),
        ("uprobe:BIN:main.floats", "args.o"),
    ],
)
def test_floating_point_registers_cannot_be_read(
    server: Server, programs: dict[str, str], probe: str, value: str
) -> None:
    script = f"{probe} {{ print({value.replace('one.', 'one[0].')}); }}".replace("BIN", programs["plain"])
    result = server.run(("--dry-run", "-e", script))
    assert result.status == 1
    assert f"ERROR: {value} is in a floating-point register, which BPF programs cannot read" in result.stderr


@pytest.mark.parametrize("way", ["plain", "slow"])
def test_arguments_and_results(server: Server, programs: dict[str, str], way: str) -> None:
    assert rows(server, ARGUMENTS, programs[way]) == [
        ["world", 3, False], "world3", ["loud", 4, True], "loud!", ["refused", -1, False], "",
        [42, "order-\u03c0", 3, -4], 122,
        [-9, 3, 1, [77], "the last"],
        [1, 9, 10, 11, "stacked"],
        [5, 7],
    ]  # fmt: skip


@pytest.mark.parametrize("way", sorted(WAYS))
def test_each_call_returns(server: Server, programs: dict[str, str], way: str) -> None:
    """Of functions that grow their stacks, in several goroutines."""
    script = "uprobe:BIN:main.grow { @in = count(); } "
    script += "uretprobe:BIN:main.grow { @out[func] = count(); @by[goid] = count(); }"
    by, entries, returns = rows(server, script, programs[way])
    # A function that needs more stack begins again when it has it, and is entered once all the same.
    assert entries == {"@in": CALLS}
    assert returns == {"@out": {"main.grow": CALLS}}
    assert list(by["@by"].values()) == [CALLS // 4] * 4, "each goroutine calls as often"


@pytest.mark.parametrize("way", sorted(WAYS))
def test_stacks_are_those_that_the_program_prints(server: Server, programs: dict[str, str], way: str) -> None:
    """Functions and lines, inlined ones too, with and without debug information."""
    said = subprocess.run([programs[way]], check=True, capture_output=True, text=True, timeout=LIMIT).stderr
    wanted = re.findall(r"called by (\S+) (\d+)", said)
    assert len(wanted) >= 4
    ((found,),) = (row["@"] for row in rows(server, "uprobe:BIN:main.leaf { @[ustack] = count(); }", programs[way]))
    frames = re.findall(r"^\s*(?:\[inlined\] )?(\S+?)(?:\+\d+)?(?:@\S*:(\d+))?$", found, re.MULTILINE)
    callers = [(name.removesuffix(".abi0"), line) for name, line in frames[1:]]
    assert callers == wanted


@pytest.mark.parametrize(
    ("count", "rounds"), [(60, 4), pytest.param(1000, 40, marks=pytest.mark.soak, id="a_million_calls")]
)
def test_calls_by_goroutine(server: Server, tmp_path: Path, count: int, rounds: int) -> None:
    """Each is found again, whichever thread it returns on; those that are left are not taken for others."""
    need("uprobe")
    program = build(GOROUTINES, tmp_path, "main")
    script = (
        "config = { max_map_keys = 100000 } "
        "call:BIN:main.work { @depth = max(depth); if (unfinished) { @hangs[args.name, depth] = count(); } "
        "else { @returned = count(); @time = sum(duration); "
        "if (retval != (args.n ^ args.how)) { @wrong = count(); } } } "
        "call:BIN:main.work /args.n == 3/ { @three[args.n] = count(); } "
        "uprobe:BIN:main.stop { exit(); }"
    ).replace("BIN", program)
    result = server.run(("-v", "-e", script, "-c", f"{program} {count} {rounds}"), timeout=60 + count)
    assert result.status == 0, result
    own = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.stderr)}
    seen = {name: int(value) for name, value in re.findall(r"^@(\w+): (\d+)$", result.stdout, re.MULTILINE)}
    assert own["entered"] > own["returned"] > count * rounds
    assert seen["returned"] == own["returned"], result
    assert "wrong" not in seen
    assert seen["depth"] == 49
    # The time of a call as it sees it itself is shorter, as its caller sees it longer.
    assert own["inside"] < seen["time"] < own["outside"], (own, seen)
    hangs = re.findall(r"^@hangs\[(\w+), (\d)\]: (\d)$", result.stdout, re.MULTILINE)
    assert sorted(hangs) == [("hangs", str(depth), "3") for depth in range(5)]
    told = re.findall(
        r"work(?:#2)?: (\d+) calls, (\d+) returned, (\d+) under way at the end, (\d+) left without", result.stderr
    )
    whole, chosen = (tuple(map(int, row)) for row in told)
    assert whole == (own["entered"], own["returned"], 15, own["entered"] - own["returned"] - 15)
    three = int(re.findall(r"^@three\[3\]: (\d+)$", result.stdout, re.MULTILINE)[0])
    assert chosen == (chosen[0], three, 3, chosen[0] - three - 3)


def test_memory_is_that_of_gos_own_allocator(server: Server, programs: dict[str, str], tmp_path: Path) -> None:
    """Programs of Go call no malloc: what a picture of them said was that of the start, in C."""
    for name in ("plain", "stripped"):
        program = programs[name]
        path = tmp_path / f"{name}.svg"
        done = server.run(("flame", "--alloc", "-o", str(path), "-c", program), timeout=60)
        assert done.status == 0, done
        assert re.search(r"^[\d.]+ [kM]B allocated, most by:$", done.stderr, re.MULTILINE), done
        named = re.findall(r"^ +[\d.]+ % +[\d.]+ (?:bytes|[kM]B)  (.+)$", done.stderr, re.MULTILINE)
        assert named
        assert not any(function.startswith("runtime.mallocgc") for function in named)
        assert "runtime.mallocgc" in path.read_text()


def test_calls_with_their_arguments_and_results(server: Server, programs: dict[str, str]) -> None:
    program = programs["plain"]
    names = ("greet", "(*Order).Total", "small", "both", "Pair.plus", "vary", "apply", "main.func3", "many", "larger*")
    targets = [f"{program}:main.{name}" for name in names]
    result = server.run(("calls", "-f", "json", *targets, "-c", program), timeout=60)
    assert result.status == 0, result
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"time"')]
    calls = [(row["call"], row.get("named") or row["args"], row["text"], row["depth"]) for row in rows]
    address = re.compile("0x[0-9a-f]+")
    found = json.loads(address.sub("ADDRESS", json.dumps(calls)))
    assert [tuple(row) for row in found if "larger" not in row[0]] == [
        ("main.greet", {"name": '"world"', "n": "3", "loud": "false"}, '("world3", nil)', 0),
        ("main.greet", {"name": '"loud"', "n": "4", "loud": "true"}, '("loud!", nil)', 0),
        ("main.greet", {"name": '"refused"', "n": "-1", "loud": "false"}, '("", *main.Refusal)', 0),
        ("main.(*Order).Total", {"o": "{ID=42, Name={str=ADDRESS, len=8}, Price=1.5}", "k": "3", "factor": "?",
                                 "rate": "-4"}, "122", 0),
        ("main.small", {"in": "{A=-9, B={str=ADDRESS, len=2}}", "s": "[1, 2, 3]", "shape": "*main.Square",
                        "call": "ADDRESS", "e": "[77]", "last": '"the last"'}, "83", 0),
        ("main.both", {"n": "8", "price": "?"}, "({N=8, Name={str=ADDRESS, len=4}, K=9}, nil)", 0),
        ("main.Pair.plus", {"p": "{A=5, B={str=ADDRESS, len=4}}", "n": "3"}, "{A=8, B={str=ADDRESS, len=5}}", 0),
        ("main.vary", {"first": "1", "rest": "[{str=ADDRESS, len=1}, {str=ADDRESS, len=2}]"}, "3", 0),
        ("main.main.func3", {"i": "7", "text": '"closed"'}, "32", 1),
        ("main.apply", {"f": "ADDRESS"}, "32", 0),
        ("main.many", {**{name: str(number) for number, name in enumerate("abcdefghijk", 1)}, "s": '"stacked"'},
         "73", 0),
    ]  # fmt: skip
    assert [(row[0].partition("[")[0], *row[1:3]) for row in found if "larger" in row[0]] == [
        ("main.larger", {"a": "3", "b": "4"}, "4"), ("main.larger", {"a": '"lesser"', "b": '"more"'}, '"more"')
    ]  # fmt: skip
    assert {row["tid"] for row in rows} == {1}, "the goroutine"
    failed = server.run(("calls", "--failed", *targets, "-c", program), timeout=60)
    shown = [line for line in failed.stdout.splitlines() if "main." in line]
    assert len(shown) == 1
    assert re.fullmatch(
        r'\[1\] main\.greet\(name="refused", n=-1, loud=false\) = \("", \*main\.Refusal\) <.*>', shown[0]
    )
