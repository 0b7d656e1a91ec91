"""Maps and aggregations: keys, access, reading."""

from __future__ import annotations

import errno
import struct

import pytest

from pytrace import pipeline
from pytrace.codegen.ir import target
from pytrace.codegen.ir.helpers import MAP_DELETE_ELEM, MAP_LOOKUP_ELEM, MAP_LOOKUP_PERCPU_ELEM, Helper
from pytrace.codegen.lower import generator, map_access
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.manifest import MapSpec, MapType
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source, Span
from pytrace.core.types import INT8, INT64, Avg, Count, Hist, LHist, Stats, String, TSeries, Tuple, Type
from pytrace.frontend.syntax.typed_program import MapInfo
from tests.codegen.emit.test_emitter import KERNEL, functions
from tests.codegen.emit.test_emitter import program_compiled as compiled
from tests.codegen.running import helpers, machine, printed, ran
from tests.support.bpf_machine import Machine, value_of
from tests.support.numbers import logarithmic
from tests.support.recorded import Facts

VALUES = [
    ("@m[1] = 5; print(@m[1]);", 5),
    ("print(@m[2]); @m[1] = 5;", 0),
    ('@m["k"] = "text"; print(@m["k"]);', b"text"),
    ('@m["k"] = "text"; print(@m["q"]);', b""),
    ("@m[1] = 5; @m[1] += 3; print(@m[1]);", 8),
    ("@m[1] += 3; print(@m[1]);", 3),
    ("@m[1]++; @m[1]++; print(@m[1]);", 2),
    ("@m[1] = 1; @m[1] |= 6; print(@m[1]);", 7),
    ("@m[1] = 7; @m[1] &= 5; print(@m[1]);", 5),
    ("@m[1] &= 5; print(@m[1]);", 0),
    ("@m[1] = 7; @m[1] ^= 1; print(@m[1]);", 6),
    ("@m[1] = 7; @m[1] -= 9; print(@m[1]);", -2),
    ("@m[1] = 8; @m[1] /= 2; print(@m[1]);", 4),
    ("@s = 5; @s += 2; print(@s + 0);", 7),
    ("@s = (uint8)255; @s = (uint8)1; print(@s + 0);", 1),
    ("@m[1] = 5; print(delete(@m, 1));", True),
    ("@m[1] = 5; print(delete(@m, 2));", False),
    ("@m[1] = 5; print(has_key(@m, 1));", True),
    ("@m[1] = 5; print(has_key(@m, 2));", False),
    ("@m[1] = 5; @m[2] = 6; print(len(@m));", 2),
    ("@m[1] = 5; _ = delete(@m, 1); print(len(@m));", 0),
    ("@s = 5; print(delete(@s));", True),
    ("@s = 5; _ = delete(@s); print(@s + 0);", 0),
    ("@m[(1, 2)] = 3; print(@m[1, 2]);", 3),
    ("@m[1] = (bool)1; @m[1] = false; print(@m[1]);", False),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_steps_of_aggregations() -> None:
    # No CPU's step is lost: a map's value is changed in place, by one look-up.
    found = ran("begin { @m[1] = 1; @m[1]++; }")
    assert found.entries("@m") == {1: 2}
    assert helpers(found).count(2) == 1
    body = '@h["a"] = hist(5); @h["a"] = hist(500); @h["b"] = hist(1);'
    assert printed(f'{body} print((has_key(@h, "a"), delete(@h, "a"), has_key(@h, "a"), has_key(@h, "b")));') == [
        (True, True, False, True)
    ]


# ----------------------------------------------------------------------------------------------------------- map access

SPAN = Span(Source("stdin", "@"), 0, 1)


@pytest.mark.parametrize(
    ("kind", "key", "value", "wanted"),
    [
        ("hash", INT8, INT64, (MapType.HASH, 1, 8)),
        ("lruhash", INT64, String(20), (MapType.LRU_HASH, 8, 20)),
        ("percpuhash", String(3), Count(), (MapType.PERCPU_HASH, 3, 8)),
        ("hash", String(3), Count(), (MapType.HASH, 3, 8)),
        ("hash", INT64, Hist(5), (MapType.HASH, 16, 8)),
        ("percpulruhash", String(3), Avg(), (MapType.LRU_PERCPU_HASH, 3, 16)),
        ("percpuhash", String(3), Stats(), (MapType.PERCPU_HASH, 3, 16)),
        ("percpuhash", String(3), Hist(5), (MapType.PERCPU_HASH, 16, 8)),
        ("percpuhash", INT64, LHist(0, 10, 1), (MapType.PERCPU_HASH, 16, 8)),
        ("percpuhash", INT64, TSeries(1, 5), (MapType.PERCPU_HASH, 16, 24)),
        ("hash", Tuple(()), INT8, (MapType.HASH, 1, 1)),
    ],
)
def test_sizes(kind: str, key: Type, value: Type, wanted: tuple[int, int, int]) -> None:
    """Histograms and time series have the bucket number after the padded key."""
    assert map_access.sizes(MapInfo("@m", key, value, kind, 5, SPAN)) == wanted


def test_names() -> None:
    assert (map_access.symbol("@"), map_access.symbol("@ab")) == ("map_", "map_ab")


@pytest.mark.parametrize("checks", [0, 1])
@pytest.mark.parametrize("value", ["1", "count()", "(1, 2)"])
def test_full_maps(value: str, checks: int) -> None:
    """Each update that is refused is counted; a CPU's first one is reported."""
    kind = "percpuhash" if "count" in value else "hash"
    script = f"let @m = {kind}(2); begin {{ @m[1] = {value}; @m[2] = {value}; @m[3] = {value}; @m[4] = {value}; }}"
    found = ran(script, options=CompileOptions(checks=checks))
    assert found.counts()["map_full"] == 2
    assert [(kind, code) for kind, (code,) in found.values()] == [("helper_error", -errno.E2BIG)] * checks


def test_another_program_that_was_faster() -> None:
    """The value that it stored is changed, and not replaced."""
    found = machine("begin { @m[1] = count(); }")
    other = found.region((41).to_bytes(8, "little"))

    def update(map_: int, key: int, _value: int, flags: int, *_: int) -> int:
        assert flags == 1
        found.maps[map_].entries[found.read(key, 8)[: found.maps[map_].key_size], 0] = other
        return -errno.EEXIST

    found.helpers[2] = update
    found.run()
    assert found.entries("@m") == {1: 42}
    assert found.counts().get("map_full", 0) == 0


@pytest.mark.parametrize(("checks", "events"), [(1, 0), (2, 1)])
def test_missing_keys_are_reported_on_request(checks: int, events: int) -> None:
    found = ran("begin { @ = @m[1]; @m[2] = 1; }", options=CompileOptions(checks=checks))
    assert len(found.events) == events


def test_a_key_that_is_there_is_changed_in_place() -> None:
    found = ran("begin { @m[1] = 1; @m[1] = 2; }")
    assert helpers(found).count(2) == 1
    found = ran('begin { @m[1] = "a"; @m[1] = "b"; }')
    assert helpers(found).count(2) == 2


def test_maps_that_are_printed_and_cleared_are_double_buffered() -> None:
    (spec,) = machine("begin { @m[1] = 1; print(@m); clear(@m); }").script.manifest.maps
    assert spec.inner == (MapType.HASH, 1, 1)
    (spec,) = machine("begin { @m[1] = 1; print(@m); }").script.manifest.maps
    assert spec.inner is None


# ---------------------------------------------------------------------------------------------------------- key digests

GET_STACK = 67
UNLOOPED = Facts(missing=frozenset({"bpf_loop"}))
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def spec(found: Machine, name: str = "@") -> MapSpec:
    return next(item for item in found.script.manifest.maps if item.name == name)


def digests(found: Machine, name: str = "@") -> dict[bytes, bytes]:
    """Whole keys by digest."""
    keys = found.maps[found.names[spec(found, name).keys]]
    return {digest: found.read(place, keys.value_size) for (digest, _), place in keys.entries.items()}


def walked(stacks: list[tuple[int, ...]], kernel: Facts | None = None) -> Machine:
    """A program that ran once for each of these stacks."""
    found = machine("kprobe:f { @[kstack] = count(); }", kernel)

    def walk(_context: int, place: int, size: int, *_: int) -> int:
        # A full stack is asked for once more, for one more frame.
        frames = given[0] if size > 8 * 127 else given.pop(0)
        if len(frames) == 127 and size == 8 * 127:
            given.insert(0, frames)
        elif size > 8 * 127:
            given.pop(0)
        found.write(place, struct.pack(f"<{len(frames)}Q", *frames).ljust(size, b"\0"))
        return 8 * len(frames)

    given = list(stacks)
    found.helpers[GET_STACK] = walk
    while given:
        found.run()
    return found


def expected(found: Machine, words: list[int]) -> bytes:
    """The sums of the first words of a key."""
    place = found.script.manifest.random_words
    assert place is not None
    random = struct.unpack(
        f"<{place.size // 8}Q", found.read(found.section(place.section) + place.offset, place.size)
    )
    sums = [
        sum((word + random[2 * at]) * ((word >> 32) + random[2 * at + 1]) for at, word in enumerate(words, number))
        for number in (0, 1)
    ]
    return struct.pack("<2Q", *(number & M64 for number in sums))


def taken(used: int, count: int) -> int:
    """How many words count of a part of which so many are used: four at a time, then sixteen."""
    first = count % 16 + 16
    if used <= first:
        return min(first, -(-used // 4) * 4)
    return first + -(-(used - first) // 16) * 16


DEEP = tuple(range(0xFFFF_0000_0000_0000, 0xFFFF_0000_0000_0000 + 127))
STACKS: list[tuple[int, ...]] = [
    *((), (0,), (0, 0), (5,), (5, 6), (5, 7), (5 << 32, 6), (6, 5), DEEP, DEEP[:-1], (*DEEP[:-1], 1)),
    *(DEEP[:number] for number in (30, 31, 32, 46, 47, 48, 63)),
]


@pytest.mark.parametrize("kernel", [None, UNLOOPED], ids=["bpf_loop", "without bpf_loop"])
def test_stacks_that_differ_have_other_digests(kernel: Facts | None) -> None:
    found = walked(STACKS + STACKS[:3], kernel)
    assert len(found.entries("@")) == len(STACKS)
    assert sorted(found.entries("@").values()) == [1] * (len(STACKS) - 3) + [2] * 3
    for stack in STACKS:
        # One of as many frames as the kernel walks is taken as truncated.
        count = len(stack) + (len(stack) == 127)
        words = [count, *stack, *[0] * (taken(len(stack), 127) - len(stack))]
        whole = struct.pack("<iI127Q", count, 0, *stack, *[0] * (127 - len(stack)))
        assert digests(found)[expected(found, words)] == whole


def test_a_stack_that_could_not_be_walked_is_a_key() -> None:
    found = machine("kprobe:f { @[kstack] = count(); }")
    found.helpers[GET_STACK] = lambda *_: -errno.EFAULT
    found.run()
    (key,) = digests(found).values()
    assert struct.unpack_from("<i", key) == (-errno.EFAULT,)
    assert set(digests(found)) == {expected(found, [-errno.EFAULT & M32])}


TEXTS = [
    *("", "a", "b", "abcdefg", "abcdefgh", "abcdefgi", "abcdefghi", "abcdefg\\x80", "x" * 98, "x" * 99, "x" * 98 + "y"),
]
LONG = [
    "y" * (length - 1) + last for length in (127, 128, 255, 256, 257, 383, 384, 640, 1015, 1016, 1022) for last in "ab"
]


@pytest.mark.parametrize("size", [100, 1024])
@pytest.mark.parametrize("kernel", [None, UNLOOPED], ids=["bpf_loop", "without bpf_loop"])
def test_strings_that_differ_have_other_digests(kernel: Facts | None, size: int) -> None:
    texts = TEXTS + (LONG if size > 100 else [])
    body = "".join(f'@[(string[{size}])"{text}"] = count(); ' for text in texts)
    found = ran(f"begin {{ {body} }}", kernel)
    assert len(found.entries("@")) == len(texts) == len(digests(found))
    assert {key.rstrip(b"\0") for key in digests(found).values()} == {
        text.encode().replace(b"\\x80", b"\x80") for text in texts
    }


@pytest.mark.parametrize("value", ["count()", "1", "hist(1)", "(1, comm)"])
@pytest.mark.parametrize("key", ['pid, (string[1024])"a", comm', '(uint8)$n, (string[77])"b", (uint8)$n'])
def test_keys_of_several_parts(key: str, value: str) -> None:
    """Each part counts, and a key whose size is not that of whole words has nothing behind its end."""
    found = ran(f"begin {{ $n = 1; @[{key}] = {value}; $n = 2; @[{key}] = {value}; }}")
    assert len(digests(found)) == (1 if key.startswith("pid") else 2)


def test_words_behind_the_end_of_a_string_do_not_count() -> None:
    """A string is read to where a longer one was."""
    found = machine("kprobe:f { @[str(arg0)] = count(); }")
    for text in (b"a\0", b"abcdefghijklmnopqrst\0", b"a\0bcdefghijklmnopqrst", b"\0", b"abcdefgh\0jkl"):
        place = found.region(text)
        found.run(context=struct.pack("<21Q", *[place] * 21).ljust(512, b"\0"))
    assert found.entries("@") == {b"a": 2, b"abcdefghijklmnopqrst": 1, b"": 1, b"abcdefgh": 1}
    assert all(key == key.partition(b"\0")[0].ljust(1024, b"\0") for key in digests(found).values())
    assert len(digests(found)) == 4


def test_a_key_comes_before_its_digest() -> None:
    found = ran('begin { @[(string[1024])"a"] = count(); @[(string[1024])"a"] = count(); }')
    number = {found.names[spec(found).symbol]: "digest", found.names[spec(found).keys]: "key"}
    updates = [number[given[0]] for helper, given in found.calls if helper == 2]
    assert updates == ["key", "digest"]


@pytest.mark.parametrize("value", ["count()", "1", "(1, 2)", "hist(1)"])
def test_an_update_whose_key_finds_no_room_is_dropped(value: str) -> None:
    found = machine(f'begin {{ @[(string[1024])"a"] = {value}; @[(string[1024])"b"] = {value}; }}')
    found.maps[found.names[spec(found).keys]].most = 1
    found.run()
    assert found.counts()["map_full"] == 1
    assert len(found.maps[found.names[spec(found).symbol]].entries) == 1


def test_reading() -> None:
    body = '@["a"] = 5; @["a"] += 2; @c["b"] = count(); print(@["a"]); print(@["b"]); print((int64)@c["b"]); '
    more = 'print(has_key(@, "a")); print(has_key(@, "c")); print(len(@)); '
    large = 'if (pid == 1) { @[(string[99])""] = 1; @c[(string[99])""] = count(); } '
    assert printed(large + body + more) == [7, 0, 1, True, False, 1]


def test_one_function_digests_all_keys_of_a_type() -> None:
    script = 'begin { @[(string[99])"a"] = 1; @b[(string[99])"a"] = 1; @c[1, (string[99])"a"] = 1; } '
    found = machine(script + 'end { @[(string[99])"b"] = 1; }')
    functions = [name for name, _ in target._functions(found.script.elf) if name.startswith("digest")]
    assert functions == ["digest_0", "digest_1"]


def test_the_random_words_are_enough() -> None:
    """The largest key's words, and one more."""
    found = machine('begin { @[(string[100])"a"] = 1; @b[kstack, 1] = 1; }')
    place = found.script.manifest.random_words
    assert place is not None
    assert place.size == 2 * 8 * (1 + 128 + 1)


FULL = b"f" * 1024
READ_TEXTS = [b"x" * 1023, b"a", FULL, b"", b"a", b"y" * 300, b"b" * 31, b"b" * 32, b"b" * 33, b"b" * 7, b"b" * 8]
KEYS = {
    "str(arg0)": lambda text: text,
    "str(arg0), pid": lambda text: (text, 4321),
    "pid, str(arg0), str(arg0)": lambda text: (4321, text, text),
    "(uint8)3, str(arg0), (uint8)5": lambda text: (3, text, 5),
    "(uint64)3, str(arg0), comm": lambda text: (3, text, b"task"),
    "(uint64)3, str(arg0, 99), comm": lambda text: (3, text[:99], b"task"),
}


def context(address: int) -> bytes:
    return struct.pack("<21Q", *[address] * 21).ljust(512, b"\0")


def ran_with(script: str, texts: list[bytes]) -> Machine:
    """A program that ran once with each of these texts as its argument, with other memory behind them."""
    found = machine(script)
    for text in texts:
        found.run(context=context(found.region(text + b"\0and so on")))
    return found


def wholes(found: Machine) -> list[bytes]:
    keys = found.maps[found.names["keys_"]]
    return [found.read(place, keys.value_size) for place in keys.entries.values()]


@pytest.mark.parametrize("value", ["count()", "hist(1)"])
@pytest.mark.parametrize("key", KEYS)
def test_what_longer_strings_left_is_in_no_key(key: str, value: str) -> None:
    found = ran_with(f"config = {{ max_strlen = 1024 }} kprobe:f {{ @[{key}] = {value}; }}", READ_TEXTS)
    (spec,) = found.script.manifest.maps
    assert spec.key is not None
    wanted = {KEYS[key](text[:1024]): text for text in READ_TEXTS}
    given = {value_of(spec.key, whole): whole for whole in wholes(found)}
    assert given.keys() == wanted.keys()
    assert len(wholes(found)) == len(given)
    least = len(given[KEYS[key](b"")].replace(b"\0", b""))
    for name, whole in given.items():
        shown = wanted[name][: 99 if "99" in key else 1024]
        assert len(whole.replace(b"\0", b"")) == least + key.count("str(") * len(shown)


def test_strings_in_keys_that_are_truncated_or_unreadable() -> None:
    texts = [FULL, FULL, b"a", FULL[1:]]
    found = ran_with("config = { max_strlen = 1024 } kprobe:f { @[str(arg0)] = count(); }", texts)
    assert found.counts()["cut"] == 2
    assert found.entries("@") == {FULL: 2, b"a": 1, FULL[1:]: 1}
    found = ran_with("kprobe:f { @[str(arg0)] = count(); }", [b"z" * 500])
    for _ in range(2):
        found.run(context=context(1))
    assert found.entries("@") == {b"z" * 500: 1, b"": 2}
    assert bytes(1024) in wholes(found)


# ----------------------------------------------------------------------------------------------------------- aggregates

AGGREGATES_VALUES = [
    ("count()", 3), ("sum(pid)", 3 * 4321), ("sum(-5)", -15), ("avg((int64)0 - 7)", -7), ("avg(pid)", 4321),
    ("min(pid)", 4321), ("max(-3)", -3), ("min(-3)", -3), ("max(nsecs)", 2_000_000_007),
]  # fmt: skip


@pytest.mark.parametrize("place", ["@", "@[1]"])
@pytest.mark.parametrize(("call", "wanted"), AGGREGATES_VALUES)
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



# ---------------------------------------------------------------------------------------------------- aggregate reading

def calls(text: str, helper: Helper[..., object]) -> int:
    """How often a script calls a helper."""
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), KERNEL, Diagnostics())
    checked = pipeline.front_end(compilation).checked
    texts = generator.llvm_texts(checked, KERNEL, compilation.options)
    return texts.original.count(f"inttoptr (i64 {helper.number} to ptr)")


@pytest.mark.parametrize("call", ["count()", "sum(pid)", "avg(pid)", "min(pid)", "max(pid)"])
def test_copies_of_all_cpus_are_read(call: str) -> None:
    """A key's by a helper, in a loop of the program's own; those without a key lie in a data section."""
    assert calls(f"begin {{ @[1] = {call}; print(@); }}", MAP_LOOKUP_PERCPU_ELEM) == 0, "the runtime reads it"
    assert calls(f"begin {{ @[1] = {call}; $x = @[1]; print($x); }}", MAP_LOOKUP_PERCPU_ELEM) == 1
    assert calls(f"begin {{ @ = {call}; $x = @; print($x); }}", MAP_LOOKUP_PERCPU_ELEM) == 0


@pytest.mark.parametrize("call", ["count()", "sum(pid)", "avg(pid)"])
def test_a_value_of_all_cpus_is_looked_up_once(call: str) -> None:
    text = f"config = {{ max_map_keys = 1000000 }} begin {{ @[1] = {call}; "
    assert calls(text + "$x = @[1]; print($x); }", MAP_LOOKUP_PERCPU_ELEM) == 0
    assert calls(text + "$x = @[1]; print($x); }", MAP_LOOKUP_ELEM) == calls(text + "}", MAP_LOOKUP_ELEM) + 1


def test_keys_with_buckets() -> None:
    text = "begin { @[1] = hist(pid); delete(@, 1); }"
    assert calls(text, MAP_DELETE_ELEM) == 1
    assert len(functions(compiled(text))) == 2
    plain = calls("begin { @[1] = hist(pid); }", MAP_LOOKUP_ELEM)
    assert calls("begin { @[1] = hist(pid); print(has_key(@, 1)); }", MAP_LOOKUP_ELEM) == plain + 1
