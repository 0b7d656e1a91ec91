"""Digests of keys, run on the BPF machine: which keys have the same one, and what is inserted with them."""

from __future__ import annotations

import errno
import struct

import pytest

from pytrace.codegen.ir import target
from pytrace.core.manifest import MapSpec
from tests.codegen.running import machine, printed, ran
from tests.support.bpf_machine import Machine, value_of
from tests.support.recorded import Facts

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


def test_a_truncated_string_is_counted_once() -> None:
    texts = [FULL, FULL, b"a", FULL[1:]]
    found = ran_with("config = { max_strlen = 1024 } kprobe:f { @[str(arg0)] = count(); }", texts)
    assert found.counts()["cut"] == 2
    assert found.entries("@") == {FULL: 2, b"a": 1, FULL[1:]: 1}


def test_a_string_that_cannot_be_read_is_empty() -> None:
    found = ran_with("kprobe:f { @[str(arg0)] = count(); }", [b"z" * 500])
    for _ in range(2):
        found.run(context=context(1))
    assert found.entries("@") == {b"z" * 500: 1, b"": 2}
    assert bytes(1024) in wholes(found)
