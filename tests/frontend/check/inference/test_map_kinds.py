"""Which maps have a value for each CPU."""

from __future__ import annotations

import pytest

from pytrace.core.types import INT64, Avg, Count, Hist, LHist, Max, Min, Stats, Sum, TSeries, Type
from pytrace.frontend.check.inference import map_kinds
from pytrace.frontend.check.inference.map_kinds import MANY_KEYS, MUCH_MEMORY, copies_size, kind_of_undeclared
from tests.support.facts import RecordedKernel
from tests.support.front import analyse


@pytest.mark.parametrize("value", [Count(), Sum(), Avg(), Stats(), Hist(), LHist(0, 10, 1)])
def test_sums_of_very_many_keys_are_shared(value: Type) -> None:
    assert kind_of_undeclared(value, 1_000_000, 2, zeroed=False) == "hash"
    assert kind_of_undeclared(value, 1_000_000, 2, zeroed=True) == "percpuhash"
    assert kind_of_undeclared(value, 4096, 512, zeroed=False) == "percpuhash"


@pytest.mark.parametrize("value", [Min(), Max(), TSeries(1, 5)])
def test_what_is_not_a_sum_is_not_shared(value: Type) -> None:
    assert kind_of_undeclared(value, 1_000_000, 512, zeroed=False) == "percpuhash"


def test_values_of_no_aggregation() -> None:
    assert kind_of_undeclared(INT64, 1, 1, zeroed=True) == "hash"


def test_the_limits() -> None:
    """Many keys, and much memory for their copies."""
    cpus = MUCH_MEMORY // (8 * MANY_KEYS)
    assert kind_of_undeclared(Count(), MANY_KEYS, cpus, zeroed=False) == "hash"
    assert kind_of_undeclared(Count(), MANY_KEYS - 1, 4 * cpus, zeroed=False) == "percpuhash"
    assert kind_of_undeclared(Count(), MANY_KEYS, cpus - 1, zeroed=False) == "percpuhash"
    assert copies_size(Stats(), 3, 5) == 240
    assert copies_size(Hist(), 3, 5) == 120, "a bucket is an entry"


def test_maps_that_a_script_sets_to_zero() -> None:
    script = "begin { @a[1] = count(); @b[1] = count(); @c[1] = count(); zero(@b); clear(@c); print(@a); }"
    assert map_kinds.zeroed_maps(analyse(script).checked().event_list) == {"@b"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("@m[1] = count();", "hash"),
        ("@m[1] = max(5);", "percpuhash"),
        ("@m[1] = count(); zero(@m);", "percpuhash"),
        ("@m[1] = count(); print(@m); clear(@m);", "hash"),
    ],
)
def test_scripts(body: str, kind: str) -> None:
    script = f"config = {{ max_map_keys = 100000 }} begin {{ {body} }}"
    info = analyse(script, kernel=RecordedKernel(possible_cpus=2)).checked().maps["@m"]
    assert (info.kind, info.shared) == (kind, kind == "hash")
    few = analyse(f"begin {{ {body} }}", kernel=RecordedKernel(possible_cpus=2)).checked().maps["@m"]
    assert (few.kind, few.shared) == ("percpuhash", False)
    other = analyse(f"let @m = percpuhash(100000); begin {{ {body} }}").checked().maps["@m"]
    assert other.kind == "percpuhash"
