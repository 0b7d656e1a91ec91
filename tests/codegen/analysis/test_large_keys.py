"""Which maps have digests of keys, and which words of a key count."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit.map_uses import Words, words_of
from pytrace.core.types import INT8, INT64, Record, Stack, StackMode, String, Tuple, Type
from tests.codegen.running import compiled

STACK = Stack(user=False)


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (STACK, (Words(0, 1), Words(1, 128, frame=1))),
        (Stack(user=True, limit=3, mode=StackMode.BUILD_ID), (Words(0, 1), Words(1, 13, frame=4))),
        (String(1024), (Words(0, 128, text=True),)),
        (String(100), (Words(0, 12, text=True), Words(12, 13))),
        (Tuple((String(16), STACK, INT64)), (Words(0, 3), Words(3, 130, frame=1), Words(130, 131))),
        (Tuple((STACK, STACK)), (Words(0, 1), Words(1, 128, frame=1), Words(128, 129), Words(129, 256, frame=1))),
        # Words that the string shares with what is beside it always count.
        (Tuple((INT8, String(128), INT8)), (Words(0, 1), Words(1, 16, text=True), Words(16, 17))),
        (Record(("a", "b"), (INT64, Tuple((String(80),)))), (Words(0, 1), Words(1, 11, text=True))),
    ],
)
def test_words(key: Type, wanted: tuple[Words, ...]) -> None:
    assert words_of(key) == wanted
    assert [part.start for part in wanted] == [0, *(part.stop for part in wanted[:-1])]
    assert wanted[-1].stop == (key.size + 7) // 8


@pytest.mark.parametrize(
    ("body", "digested"),
    [
        ("@[kstack] = count();", True),
        ("@[kstack(8)] = count();", True),
        ("@[kstack(7)] = count();", False),
        ("@[str(0, 63)] = 1;", False),
        ("@[str(0, 64)] = 1;", True),
        ("@[comm, comm, comm, comm, 1] = 1;", False),
        ("@[ustack, comm] = hist(1);", True),
        ("@[kstack] = 1; delete(@, kstack);", False),
        ("@[kstack] = 1; delete(@[kstack]);", False),
        ("@[kstack] = 1; for ($kv : @) { print($kv.1); }", False),
        ("@[kstack] = 1; print(@); clear(@);", True),
        ("@[kstack] = 1; if (has_key(@, kstack)) { print(len(@)); }", True),
    ],
)
def test_maps(body: str, digested: bool) -> None:
    (spec,) = compiled(f"kprobe:f {{ {body} }}").manifest.maps
    assert spec.keys == ("keys_" if digested else "")


@pytest.mark.parametrize(("kind", "value"), [("lruhash", "1"), ("percpulruhash", "count()")])
def test_maps_that_forget_have_keys(kind: str, value: str) -> None:
    manifest = compiled(f"let @ = {kind}(10); kprobe:f {{ @[kstack] = {value}; }}").manifest
    assert manifest.maps[0].keys == ""
    assert manifest.random_words is None


def test_a_function_that_deletes() -> None:
    script = "fn f($a: int64): int64 { delete(@, kstack); return $a; } kprobe:f { @[kstack] = 1; f(1); }"
    assert [spec.keys for spec in compiled(script).manifest.maps] == [""]
