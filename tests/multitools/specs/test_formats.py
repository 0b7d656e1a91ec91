from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs import formats
from pytrace.multitools.specs.problems import SpecText


def test_conversions() -> None:
    spec = SpecText.of('"%d %5lu %-8s %K %% %10U %llx"')
    assert [item.name for item in formats.conversions(spec)] == ["d", "u", "s", "K", "U", "x"]
    assert formats.script_format(spec) == "%d %5lu %-8s %s %% %10s %llx"


def test_values() -> None:
    spec = SpecText.of('"%s %K %U %d"')
    found = formats.values(spec, formats.conversions(spec), ["a", "b", "c", "d"], lambda text: f"str({text})")
    assert found == ["str(a)", "ksym(b)", "usym(c)", "d"]


@pytest.mark.parametrize(("text", "word"), [('"%y"', "%y"), ('"a %5q"', "%5q"), ('"%f"', "%f"), ('"%"', "%")])
def test_unknown_conversions(text: str, word: str) -> None:
    with pytest.raises(TraceError, match="unknown conversion") as caught:
        formats.conversions(SpecText.of(text))
    _, line, mark = caught.value.message.split("\n")
    assert line[mark.index("~") :].startswith(word)


@pytest.mark.parametrize("values", [[], ["a"], ["a", "b", "c"]])
def test_numbers_of_values(values: list[str]) -> None:
    spec = SpecText.of('"%d %d"')
    with pytest.raises(TraceError, match=f"takes 2 values, {len(values)} given"):
        formats.values(spec, formats.conversions(spec), values, str)
