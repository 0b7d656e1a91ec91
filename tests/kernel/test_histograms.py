"""Programs put values into the buckets that the reference's formulas name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.numbers import logarithmic
from tests.support.server import Server

_PROPERTY = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_EDGES = [0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1]
_SIGNED = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-3, 200) | st.sampled_from(_EDGES)
_UNSIGNED = st.integers(0, 2**64 - 1) | st.sampled_from([*_EDGES, 2**63, 2**64 - 1])


def counted(server: Server, values: list[int], function: str, *, unsigned: bool = False) -> list[dict[str, Any]]:
    """The one bucket of each value; the program reads the values out of a map, so that none is a constant to it."""
    kind = "uint64" if unsigned else "int64"
    stored = " ".join(f"@v[{index}] = ({kind}){value};" for index, value in enumerate(values))
    loop = f"for ($kv : @v) {{ @h[$kv.0] = {function.replace('N', '$kv.1')}; }}"
    done = server.run(
        ("-q", "-f", "json", "--no-cache", "-e", f"begin {{ {stored} {loop} clear(@v); exit(); }}"), timeout=60
    )
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)["data"]["@h"]
    full = [[bucket for bucket in found[str(index)] if bucket["count"]] for index in range(len(values))]
    assert all(len(buckets) == 1 and buckets[0]["count"] == 1 for buckets in full)
    return [buckets[0] for buckets in full]


@pytest.mark.parametrize("unsigned", [False, True], ids=["signed", "unsigned"])
@pytest.mark.parametrize("bits", range(6))
def test_logarithmic(server: Server, bits: int, unsigned: bool) -> None:
    @_PROPERTY
    @given(st.lists(_UNSIGNED if unsigned else _SIGNED, min_size=1, max_size=40))
    def check(values: list[int]) -> None:
        buckets = counted(server, values, f"hist(N, {bits})", unsigned=unsigned)
        for value, bucket in zip(values, buckets, strict=True):
            number = logarithmic(value, bits)
            if number == 0:
                assert "min" not in bucket
                assert int(bucket["max"]) == -1
                continue
            low, high = int(bucket["min"]), int(bucket["max"])
            assert low <= value <= high
            assert logarithmic(low, bits) == logarithmic(high, bits) == number
            assert logarithmic(low - 1, bits) == number - 1
            assert logarithmic(high + 1, bits) == number + 1

    check()


def test_linear(server: Server) -> None:
    @_PROPERTY
    @given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 20), st.integers(0, 19), st.data())
    def check(low: int, step: int, steps: int, rest: int, data: st.DataObject) -> None:
        high = low + step * steps + rest % step
        values = data.draw(st.lists(st.integers(low - 3, high + 3) | _SIGNED, min_size=1, max_size=40))
        last = 1 + (high - low) // step
        buckets = counted(server, values, f"lhist(N, {low}, {high}, {step})")
        for value, bucket in zip(values, buckets, strict=True):
            number = 0 if value < low else last if value > high else 1 + (value - low) // step
            assert bucket.get("min") == (None if number == 0 else low + (number - 1) * step)
            assert bucket.get("max") == (None if number == last else low + number * step - 1)

    check()
