"""Maps with large keys, and with so many keys that all CPUs share their values."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.compile import SOURCES
from tests.support.server import Result, Server

TEXT = "(string[1024])"
"""Before a literal, which would have a small type."""
PROBE = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/"


def run(server: Server, script: str, *words: str, timeout: float = 60) -> Result:
    done = server.run(("-q", "-f", "json", "--no-cache", "-e", script, *words), timeout=timeout)
    assert done.status == 0, done.stderr
    return done


def lines(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def maps(done: Result) -> dict[str, Any]:
    """The maps that were printed, by name; later ones replace earlier ones."""
    found: dict[str, Any] = {}
    for item in lines(done):
        if item["type"] in ("map", "hist", "stats"):
            found.update(item["data"])
    return found


# Around the ends of words, and of the longest string.
LENGTHS = (0, 1, 6, 7, 8, 9, 15, 16, 17, 63, 64, 65, 511, 1015, 1016, 1022)
TEXTS = ["x" * (length - 1) + last for length in LENGTHS if length for last in "ab"] + [""]


@pytest.mark.each_kernel
@pytest.mark.parametrize("words", [(), ("--no-feature", "bpf_loop")], ids=["bpf_loop", "without bpf_loop"])
def test_strings_that_differ_in_their_last_byte_or_length(server: Server, words: tuple[str, ...]) -> None:
    body = "".join(f'@c[{TEXT}"{text}"] = count(); @c["{text}"] = count(); ' for text in TEXTS)
    found = maps(run(server, f"config = {{ max_strlen = 1024 }} begin {{ {body} @k[kstack] = 1; exit(); }}", *words))
    assert found["@c"] == dict.fromkeys(TEXTS, 2)
    assert len(found["@k"]) == 1


VALUES = {
    "count()": (2, "count"), "sum(N)": (7, "sum"), "min(N)": (3, "min"), "max(N)": (4, "max"), "avg(N)": (3, "avg"),
}  # fmt: skip


READ = """
import os, sys
for name in sys.argv[1:]:
    for path in (name, "", name + "z" * 40, name):
        try:
            os.open(path, 0)
        except OSError:
            pass
"""


def test_strings_that_are_read(server: Server, tmp_path: Path) -> None:
    """What longer strings left in memory is neither in a key nor in its digest."""
    (tmp_path / "read.py").write_text(READ)
    names = ["/" + text[1:] for text in TEXTS if 1 < len(text) < 900]
    key = "str(args.filename)"
    script = (
        "config = { max_strlen = 1024 } tracepoint:syscalls:sys_enter_openat /pid == cpid && (@on || "
        f'{key} == "{names[0]}")/ {{ @on = true; @c[{key}]++; @n[{key}] = count(); @h[{key}, 5] = hist(1); '
        f'@two[comm, {key}, {key}] = 1; @b[(uint8)3, {key}, (uint8)5]++; if ({key} == "{names[-1]}") {{ @last++; }}'
        f" if (@last == 2) {{ @on = false; }} }}"
    )
    found = maps(run(server, script, "-c", f"/usr/bin/python3 -S {tmp_path}/read.py {' '.join(names)}"))
    opened: dict[str, int] = {}
    for name in names:
        for path in (name, "", name + "z" * 40, name):
            opened[path] = opened.get(path, 0) + 1
    assert found["@c"] == found["@n"] == opened
    assert {name: buckets[0]["count"] for name, buckets in found["@h"].items()} == {
        f"{path},5": number for path, number in opened.items()
    }
    assert {name.partition(",")[2] for name in found["@two"]} == {f"{path},{path}" for path in opened}
    assert found["@b"] == {f"3,{path},5": number for path, number in opened.items()}


MIXED = [f'{TEXT}"abc"', f'{TEXT}"abc", 7', f'kstack(1), {TEXT}"", 7, ustack', "kstack(90), comm"]


@pytest.mark.parametrize("key", MIXED)
def test_values_of_all_kinds(server: Server, programs: Path, key: str) -> None:
    several = "".join(f"@{name}[{key}] = {call.replace('N', '$n')}; " for call, (_, name) in VALUES.items())
    script = (
        f"{PROBE} {{ @calls++; $n = @calls + 2; {several} @h[{key}] = hist($n); @l[{key}] = lhist($n, 0, 9, 1);"
        f" @s[{key}] = stats($n); @i[{key}]++; @i[{key}] += 5; @a[{key}] = $n; @t[{key}] = (@calls, comm);"
        f" @j[{key}] = comm; @seen = has_key(@i, ({key})); @read = @i[{key}]; @copy[@calls] = @t[{key}].0; }}"
    )
    found = maps(run(server, script, "-c", f"{programs}/syscalls 2"))
    for wanted, name in VALUES.values():
        assert list(found[f"@{name}"].values()) == [wanted], name
    (buckets,) = found["@h"].values()
    assert [bucket["count"] for bucket in buckets] == [1, 1]
    (buckets,) = found["@l"].values()
    assert sum(bucket["count"] for bucket in buckets) == 2
    assert [len(found[name]) for name in ("@s", "@i", "@a", "@t", "@j")] == [1] * 5
    assert list(found["@i"].values()) == [12]
    assert list(found["@a"].values()) == [4]
    assert next(iter(found["@t"].values()))[0] == 2
    assert (found["@read"], found["@copy"]) == (12, {"1": 1, "2": 2})
    assert found["@seen"] in (1, True)


@pytest.mark.parametrize("operator", ["=", "+=", "|="])
def test_a_variable_that_changes_in_the_statement(server: Server, operator: str) -> None:
    body = f'let $s : string[1024]; $s = "first"; @[$s] {operator} {{ $s = "other"; 3 }}; @x[$s]++;'
    script = f"begin {{ {body} exit(); }}"
    assert maps(run(server, script)) == {"@": {"other": 3}, "@x": {"other": 1}}


def test_keys_of_a_map_whose_values_change(server: Server) -> None:
    script = 'begin { @s = (string[1024])"one"; @[@s]++; @s = "two"; @[@s]++; @[@s]++; clear(@s); exit(); }'
    assert maps(run(server, script))["@"] == {"one": 1, "two": 2}


def test_what_a_program_deletes_is_gone(server: Server) -> None:
    script = (
        f'begin {{ @[{TEXT}"one"] = 1; @[{TEXT}"two"] = 2; delete(@, {TEXT}"one"); @f[{TEXT}"a"] = 1; '
        'for ($kv : @f) { printf("%s\\n", $kv.0); } exit(); }'
    )
    done = run(server, script)
    assert maps(done)["@"] == {"two": 2}
    assert [item["data"] for item in lines(done) if item["type"] == "printf"] == ["a\n"]


def test_a_full_map_is_reported(server: Server) -> None:
    body = "".join(f'@[{TEXT}"{number}"] = count(); @h[{TEXT}"{number}"] = hist(1); ' for number in range(9))
    done = server.run(("-q", "-e", f"config = {{ max_map_keys = 4 }} begin {{ {body} exit(); }}"), timeout=30)
    assert done.stdout.count("@[") == 4
    assert done.stdout.count("@h[") == 4
    assert "@ is full (4 keys)" in done.stderr
    assert "@h is full (4 keys)" in done.stderr


@pytest.mark.each_kernel
def test_an_emptied_map_has_room_again(server: Server) -> None:
    """Whole keys of entries that are gone must not fill the map of keys."""
    rounds = 6
    fill = "".join(f'@p[$r * 8 + {n}, TEXT"x"] = count(); @c[TEXT"x", $r * 8 + {n}]++; ' for n in range(8))
    # The next round begins when what the last one asked for is done, however long that takes.
    script = (
        f"config = {{ max_map_keys = 8 }} interval:ms:30 {{ if (len(@p) == 0 && len(@c) == 0) {{ if (@r == {rounds}) "
        f'{{ exit(); return; }} $r = @r; @r++; {fill} printf("%d\\n", len(@c)); print(@p); clear(@p); '
        "clear(@c); } }"
    )
    done = run(server, script.replace("TEXT", TEXT))
    assert "full" not in done.stderr + done.stdout
    found = [item["data"] for item in lines(done) if item["type"] == "map"]
    printed = [item["@p"] for item in found if "@p" in item]
    assert [len(item) for item in printed] == [8] * rounds
    assert all(set(item.values()) == {1} for item in printed)
    assert len({name for item in printed for name in item}) == 8 * rounds
    assert [item["data"] for item in lines(done) if item["type"] == "printf"] == ["8\n"] * rounds


# Never more than the maps have room for, however long a run takes.
KEYS = {"new for all at once": 'nsecs / 200000 % 20000, (string[100])"x"', "few": "kstack(3), tid % 7, str(comm)"}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("empty", ["", "print(@m); clear(@m); print(@h); clear(@h);"])
def test_no_update_of_several_threads_is_lost(server: Server, programs: Path, key: str, empty: str) -> None:
    script = (
        "config = { max_map_keys = 30000; max_strlen = 128 } "
        f"tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ @m[{key}]++; @h[{key}] = hist(3); @n = count(); }} "
        f"interval:ms:40 {{ {empty} @ticks++; if (@ticks == 12) {{ exit(); }} }}"
    )
    done = run(server, script, "-c", f"{programs}/flood 2000000000 4", timeout=90)
    assert "full" not in done.stdout + done.stderr
    counted = {"@m": 0, "@h": 0, "@n": 0}
    for item in lines(done):
        for name, data in item["data"].items() if item["type"] in ("map", "hist") else ():
            if name == "@h":
                counted[name] += sum(bucket["count"] for buckets in data.values() for bucket in buckets)
            elif name in counted:
                counted[name] += data if isinstance(data, int) else sum(data.values())
    assert counted["@n"] > 0
    # The last call may have counted in the maps only: the run ends in the middle of it.
    assert abs(counted["@m"] - counted["@n"]) <= 4
    assert abs(counted["@h"] - counted["@n"]) <= 4


# ---------------------------------------------------------------------------------------------- shared maps
# Maps with so many keys that all CPUs share their values (pytrace.frontend.check.maps).


MANY = "config = { max_map_keys = 70000 } "
FEW = "config = { max_map_keys = 4096 } "
NOTE = "one value for each key"


def run_shared(server: Server, script: str, *words: str, timeout: float = 90) -> Result:
    done = server.run(("-q", "--no-cache", "-e", script, *words), timeout=timeout)
    assert done.status == 0, done.stderr
    return done


def shared_maps(done: Result) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [item["data"] for item in found if item["type"] in ("map", "hist", "stats")]


MANY_KEYS = 8_000
ROUNDS = 2
ORDINAL = f"$n = @i[tid]++ % {MANY_KEYS};"
"""Threads come to the same new keys at about the same time, each once a round."""


@pytest.mark.parametrize("key", ["$n", "$n, 1", '$n, (string[128])"x"'], ids=["number", "numbers", "digest"])
def test_keys_that_two_cpus_insert_at_the_same_time(server: Server, programs: Path, key: str) -> None:
    body = f"@c[{key}] = count(); @s[{key}] = sum(-$n); @a[{key}] = avg($n + 2); @h[{key}] = hist($n & 1);"
    script = f"{MANY} tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {ORDINAL} {body} }} end {{ clear(@i); }}"
    done = run_shared(server, script, "-v", "-f", "json", "-c", f"{programs}/flood {MANY_KEYS * ROUNDS} 2")
    assert done.stderr.count(NOTE) == 4
    found = {name: data for item in shared_maps(done) for name, data in item.items()}
    times = 2 * ROUNDS
    rest = "" if key == "$n" else "," + ("1" if key == "$n, 1" else "x")
    assert found["@c"] == {f"{n}{rest}": times for n in range(MANY_KEYS)}
    assert found["@s"] == {f"{n}{rest}": -n * times for n in range(MANY_KEYS)}
    assert found["@a"] == {f"{n}{rest}": n + 2 for n in range(MANY_KEYS)}
    assert {sum(bucket["count"] for bucket in item) for item in found["@h"].values()} == {times}
    assert len(found["@h"]) == MANY_KEYS


def test_no_update_is_lost_between_print_and_clear(server: Server, programs: Path) -> None:
    script = (
        f"{MANY} tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {ORDINAL} @c[$n] = count(); }} "
        "interval:ms:40 { print(@c); clear(@c); } end { clear(@i); }"
    )
    done = run_shared(server, script, "-v", "-f", "json", "-c", f"{programs}/flood {MANY_KEYS * ROUNDS} 2")
    assert done.stderr.count(NOTE) == 1
    totals: Counter[str] = Counter()
    for item in shared_maps(done):
        totals.update(item.get("@c", {}))
    assert totals == {str(n): 2 * ROUNDS for n in range(MANY_KEYS)}


@pytest.mark.parametrize("words", [(), ("-f", "json")], ids=["text", "json"])
def test_they_do_what_others_do(server: Server, words: tuple[str, ...]) -> None:
    script = (SOURCES / "shared_maps.bt").read_text()
    shared, own = (run_shared(server, config + script, "-v", *words) for config in (MANY, FEW))
    assert (shared.stderr.count(NOTE), own.stderr.count(NOTE)) == (8, 0)
    assert shared.stdout == own.stdout
    assert "@d[4]: 1" in shared.stdout or words


def test_a_map_that_is_set_to_zero_has_values_for_each_cpu(server: Server) -> None:
    script = "begin { for ($i : 0..9) { @z[$i] = count(); } zero(@z); exit(); } end { @z[1] = count(); }"
    done = run_shared(server, MANY + script, "-v", "-f", "json")
    assert NOTE not in done.stderr
    assert shared_maps(done)[-1]["@z"] == {str(n): int(n == 1) for n in range(9)}


def test_a_declared_map_is_what_it_is_declared_as(server: Server) -> None:
    done = run_shared(server, "let @c = percpuhash(70000); begin { @c[1] = count(); exit(); }", "-v")
    assert NOTE not in done.stderr
    assert "@c[1]: 1" in done.stdout


def test_keys_beyond_the_limit_are_counted(server: Server) -> None:
    script = "begin { for ($i : 0..70050) { @c[$i] = count(); @c[$i] = count(); } exit(); }"
    done = server.run(("-q", "-f", "json", "-e", MANY + script), timeout=90)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    losses = next(item for item in found if item["type"] == "losses")
    assert losses["data"]["map_full"] == {"@c": 100}
    values = shared_maps(done)[-1]["@c"]
    assert len(values) == 70_000
    assert set(values.values()) == {2}


def test_they_are_saved(server: Server, tmp_path: Path) -> None:
    script = "begin { for ($i : 0..6000) { @c[$i] = count(); @h[$i] = hist($i); @c[$i] = count(); } exit(); }"
    saved = {}
    for name, config in (("shared", MANY), ("own", "config = { max_map_keys = 8000 } ")):
        run_shared(server, config + script, "--save", str(tmp_path / name))
        shown = server.run(("show", str(tmp_path / name)), timeout=60)
        assert shown.status == 0, shown.stderr
        saved[name] = [line for line in shown.stdout.splitlines() if line.startswith("@")]
    assert saved["shared"] == saved["own"]
    assert len(saved["shared"]) == 12_000
