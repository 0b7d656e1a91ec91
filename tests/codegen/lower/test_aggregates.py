"""Aggregations: buckets, what they hold, what reading them gives."""

from __future__ import annotations

import struct

import pytest

from pytrace import pipeline
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from tests.codegen.running import machine, printed, ran
from tests.support.numbers import logarithmic
from tests.support.recorded import Facts

VALUES = [
    ("count()", 3), ("sum(pid)", 3 * 4321), ("sum(-5)", -15), ("avg((int64)0 - 7)", -7), ("avg(pid)", 4321),
    ("min(pid)", 4321), ("max(-3)", -3), ("min(-3)", -3), ("max(nsecs)", 2_000_000_007),
]  # fmt: skip


@pytest.mark.parametrize("place", ["@", "@[1]"])
@pytest.mark.parametrize(("call", "wanted"), VALUES)
def test_what_is_read(place: str, call: str, wanted: int) -> None:
    body = f"{place} = {call}; " * 3
    assert printed(f"{body} $x = (int64){place}; print($x);") == [wanted]


@pytest.mark.parametrize("place", ["@", "@[1]"])
def test_extremes_of_both_signs(place: str) -> None:
    for call, numbers, wanted in (
        ("min", (5, -7, 3), -7), ("max", (-5, -7, -3), -3), ("max", (0, -1), 0), ("min", (2**63 - 1,), 2**63 - 1),
    ):  # fmt: skip
        body = " ".join(f"{place} = {call}((int64)({number}));" for number in numbers)
        assert printed(f"{body} $x = (int64){place}; print($x);") == [wanted]


@pytest.mark.parametrize("call", ["count()", "min(1)", "max(1)", "avg(1)", "sum(1)"])
def test_nothing_reads_as_zero(call: str) -> None:
    assert printed(f"if (pid == 0) {{ @ = {call}; @k[1] = {call}; }} print((int64)@); print((int64)@k[1]);") == [0, 0]


NUMBERS = [0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 100, 1023, 1024, 2**20 + 5, 2**62, 2**63 - 1, -1, -(2**63)]


@pytest.mark.parametrize("bits", range(6))
def test_buckets_of_logarithmic_histograms(bits: int) -> None:
    found = machine(f"kprobe:vfs_read {{ @[0] = hist((int64)arg0, {bits}); }}")
    spec = found.script.manifest.maps[0]
    table = found.maps[found.names[spec.symbol]]
    for number in NUMBERS:
        table.entries.clear()
        context = bytearray(168)
        context[112:120] = struct.pack("<q", number)
        found.run(context=bytes(context))
        (((key, _), place),) = table.entries.items()
        assert struct.unpack("<Q", key[8:]) == (logarithmic(number, bits),), number
        assert found.load(place, 8) == 1


@pytest.mark.parametrize(
    ("number", "bucket"), [(-1, 0), (9, 0), (10, 1), (14, 1), (15, 2), (29, 4), (30, 5), (31, 5), (10**9, 5)]
)
def test_buckets_of_linear_histograms(number: int, bucket: int) -> None:
    found = ran(f"begin {{ @ = lhist((int64)({number}) + pid - 4321, 10, 30, 5); }}")
    words = found.slot("@")
    assert [at for at, count in enumerate(words) if count] == [bucket]


def test_large_unsigned_numbers_are_in_the_last_bucket() -> None:
    words = ran("begin { @ = lhist((uint64)(0 - pid), 0, 10, 5); }").slot("@")
    assert [at for at, count in enumerate(words) if count] == [3]


@pytest.mark.parametrize(("reduce", "wanted"), [("sum", 9), ("avg", 9), ("min", 2), ("max", 4), ("", 3)])
@pytest.mark.parametrize("place", ["@", "@[1]"])
def test_time_series(place: str, reduce: str, wanted: int) -> None:
    end = f', "{reduce}"' if reduce else ""
    found = ran("begin { " + " ".join(f"{place} = tseries({n}, 1s, 4{end});" for n in (2, 4, 3)) + " }")
    now = 2_000_000_007 // 10**9
    if place == "@":
        words = found.slot("@")[3 * (now % 4) :]
    else:
        spec = found.script.manifest.maps[0]
        (((key, _), at),) = found.maps[found.names[spec.symbol]].entries.items()
        assert struct.unpack("<Q", key[8:]) == (now % 4,)
        words = struct.unpack("<3Q", found.read(at, 24))
    assert words[:2] == (now + 1, wanted)
    assert words[2] == (3 if reduce else 2_000_000_007)


@pytest.mark.parametrize(
    ("call", "updates"), [("count()", 1), ("sum(pid)", 1), ("avg(pid)", 2), ("stats(pid)", 2), ("hist(pid)", 1)]
)
def test_values_of_all_cpus_are_added_to_atomically(call: str, updates: int) -> None:
    """Where the key is found, and where another CPU has inserted it in between."""
    own, shared = (
        llvm(f"config = {{ max_map_keys = {keys} }} begin {{ @[1] = {call}; }}").count("atomicrmw add")
        for keys in (1000, 1_000_000)
    )
    assert shared - own == 2 * updates


def llvm(text: str) -> str:
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), Facts(), Diagnostics())
    return generator.llvm_texts(pipeline.front_end(compilation).checked, Facts(), compilation.options).original


def test_a_value_of_all_cpus_is_read() -> None:
    found = machine("config = { max_map_keys = 1000000 } begin { @c[1] = count(); @a[1] = sum(5); @m[1] = avg(cpu); "
                    "print(((int64)@c[1], (int64)@a[1], (int64)@m[1], (int64)@c[2])); }")  # fmt: skip
    for cpu in range(4):
        found.cpu = cpu
        found.run()
    assert found.printed() == [(1, 5, 0, 0), (2, 10, 0, 0), (3, 15, 1, 0), (4, 20, 1, 0)]


def test_values_of_all_cpus_are_merged() -> None:
    found = machine("begin { @ = count(); @m = max(cpu); @a[1] = sum(5); print(((int64)@, (int64)@m, (int64)@a[1])); }")
    for cpu in range(4):
        found.cpu = cpu
        found.run()
    assert found.printed() == [(at + 1, at, 5 * (at + 1)) for at in range(4)]
