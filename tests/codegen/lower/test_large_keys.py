"""Large keys in memory, on the BPF machine: strings that were read are clear behind their ends where it matters."""

from __future__ import annotations

import struct

import pytest

from tests.codegen.running import machine
from tests.support.bpf_machine import Machine, value_of

FULL = b"f" * 1024
TEXTS = [b"x" * 1023, b"a", FULL, b"", b"a", b"y" * 300, b"b" * 31, b"b" * 32, b"b" * 33, b"b" * 7, b"b" * 8]
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


def ran(script: str, texts: list[bytes]) -> Machine:
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
    found = ran(f"config = {{ max_strlen = 1024 }} kprobe:f {{ @[{key}] = {value}; }}", TEXTS)
    (spec,) = found.script.manifest.maps
    assert spec.key is not None
    wanted = {KEYS[key](text[:1024]): text for text in TEXTS}
    given = {value_of(spec.key, whole): whole for whole in wholes(found)}
    assert given.keys() == wanted.keys()
    assert len(wholes(found)) == len(given)
    least = len(given[KEYS[key](b"")].replace(b"\0", b""))
    for name, whole in given.items():
        shown = wanted[name][: 99 if "99" in key else 1024]
        assert len(whole.replace(b"\0", b"")) == least + key.count("str(") * len(shown)


def test_a_truncated_string_is_counted_once() -> None:
    found = ran("config = { max_strlen = 1024 } kprobe:f { @[str(arg0)] = count(); }", [FULL, FULL, b"a", FULL[1:]])
    assert found.counts()["cut"] == 2
    assert found.entries("@") == {FULL: 2, b"a": 1, FULL[1:]: 1}


def test_a_string_that_cannot_be_read_is_empty() -> None:
    found = ran("kprobe:f { @[str(arg0)] = count(); }", [b"z" * 500])
    for _ in range(2):
        found.run(context=context(1))
    assert found.entries("@") == {b"z" * 500: 1, b"": 2}
    assert bytes(1024) in wholes(found)
