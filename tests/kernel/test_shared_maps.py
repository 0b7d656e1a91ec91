"""Maps with so many keys that all CPUs share their values (pytrace.frontend.check.maps)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Result, Server

MANY = "config = { max_map_keys = 70000 } "
FEW = "config = { max_map_keys = 4096 } "
NOTE = "one value for each key"


def run(server: Server, script: str, *words: str, timeout: float = 90) -> Result:
    done = server.run(("-q", "--no-cache", "-e", script, *words), timeout=timeout)
    assert done.status == 0, done.stderr
    return done


def maps(done: Result) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [item["data"] for item in found if item["type"] in ("map", "hist", "stats")]


KEYS = 20_000
ROUNDS = 2
ORDINAL = f"$n = @i[tid]++ % {KEYS};"
"""Threads come to the same new keys at about the same time, each once a round."""


@pytest.mark.parametrize("key", ["$n", "$n, 1", '$n, (string[128])"x"'], ids=["number", "numbers", "digest"])
def test_keys_that_two_cpus_insert_at_the_same_time(server: Server, programs: Path, key: str) -> None:
    body = f"@c[{key}] = count(); @s[{key}] = sum(-$n); @a[{key}] = avg($n + 2); @h[{key}] = hist($n & 1);"
    script = f"{MANY} tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {ORDINAL} {body} }} end {{ clear(@i); }}"
    done = run(server, script, "-v", "-f", "json", "-c", f"{programs}/flood {KEYS * ROUNDS} 2")
    assert done.stderr.count(NOTE) == 4
    found = {name: data for item in maps(done) for name, data in item.items()}
    times = 2 * ROUNDS
    rest = "" if key == "$n" else "," + ("1" if key == "$n, 1" else "x")
    assert found["@c"] == {f"{n}{rest}": times for n in range(KEYS)}
    assert found["@s"] == {f"{n}{rest}": -n * times for n in range(KEYS)}
    assert found["@a"] == {f"{n}{rest}": n + 2 for n in range(KEYS)}
    assert {sum(bucket["count"] for bucket in item) for item in found["@h"].values()} == {times}
    assert len(found["@h"]) == KEYS


def test_no_update_is_lost_between_print_and_clear(server: Server, programs: Path) -> None:
    script = (
        f"{MANY} tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {ORDINAL} @c[$n] = count(); }} "
        "interval:ms:40 { print(@c); clear(@c); } end { clear(@i); }"
    )
    done = run(server, script, "-v", "-f", "json", "-c", f"{programs}/flood {KEYS * ROUNDS} 2")
    assert done.stderr.count(NOTE) == 1
    totals: Counter[str] = Counter()
    for item in maps(done):
        totals.update(item.get("@c", {}))
    assert totals == {str(n): 2 * ROUNDS for n in range(KEYS)}


USED = """begin {
    for ($i : 0..50) {
        @c[$i % 7] = count(); @s[$i % 7, "x"] = sum(-$i); @a[$i % 5] = avg($i - 9); @t[$i % 5] = stats(-$i);
        @h[$i % 3] = hist($i); @l[$i % 3] = lhist($i, 0, 40, 8); @d[$i % 9] = count(); @e[$i] = count();
    }
    printf("%d %d %d %d\\n", (int64)@c[3], (int64)@s[2, "x"], (int64)@a[1], (int64)@c[99]);
    if (@c[1] > 7 && @a[4] > 2) { printf("more\\n"); }
    print((@c[2], @a[3])); print(@t[2]); print(@c[5]); print(@h, 1);
    print((has_key(@c, 4), has_key(@c, 40), has_key(@h, 2), has_key(@h, 3)));
    delete(@d, 3); delete(@d, 4); delete(@h, 2); @d[4] = count();
    for ($kv : @d) { @sum += (int64)$kv.1; @n++; }
    print(@c, 2, 3); print(@s, 3); print(@a, 0, 2); print(@l, 1); print(len(@d));
    clear(@e); print(@e); @e[5] = count();
    exit();
}"""


@pytest.mark.parametrize("words", [(), ("-f", "json")], ids=["text", "json"])
def test_they_do_what_others_do(server: Server, words: tuple[str, ...]) -> None:
    shared, own = (run(server, config + USED, "-v", *words) for config in (MANY, FEW))
    assert (shared.stderr.count(NOTE), own.stderr.count(NOTE)) == (8, 0)
    assert shared.stdout == own.stdout
    assert "@d[4]: 1" in shared.stdout or words


def test_a_map_that_is_set_to_zero_has_values_for_each_cpu(server: Server) -> None:
    script = "begin { for ($i : 0..9) { @z[$i] = count(); } zero(@z); exit(); } end { @z[1] = count(); }"
    done = run(server, MANY + script, "-v", "-f", "json")
    assert NOTE not in done.stderr
    assert maps(done)[-1]["@z"] == {str(n): int(n == 1) for n in range(9)}


def test_a_declared_map_is_what_it_is_declared_as(server: Server) -> None:
    done = run(server, "let @c = percpuhash(70000); begin { @c[1] = count(); exit(); }", "-v")
    assert NOTE not in done.stderr
    assert "@c[1]: 1" in done.stdout


def test_keys_beyond_the_limit_are_counted(server: Server) -> None:
    script = "begin { for ($i : 0..70050) { @c[$i] = count(); @c[$i] = count(); } exit(); }"
    done = server.run(("-q", "-f", "json", "-e", MANY + script), timeout=90)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    losses = next(item for item in found if item["type"] == "losses")
    assert losses["data"]["map_full"] == {"@c": 100}
    values = maps(done)[-1]["@c"]
    assert len(values) == 70_000
    assert set(values.values()) == {2}


def test_they_are_saved(server: Server, tmp_path: Path) -> None:
    script = "begin { for ($i : 0..6000) { @c[$i] = count(); @h[$i] = hist($i); @c[$i] = count(); } exit(); }"
    saved = {}
    for name, config in (("shared", MANY), ("own", "config = { max_map_keys = 8000 } ")):
        run(server, config + script, "--save", str(tmp_path / name))
        shown = server.run(("show", str(tmp_path / name)), timeout=60)
        assert shown.status == 0, shown.stderr
        saved[name] = [line for line in shown.stdout.splitlines() if line.startswith("@")]
    assert saved["shared"] == saved["own"]
    assert len(saved["shared"]) == 12_000
