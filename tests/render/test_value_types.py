"""One row for each value type, and what each of them must have."""

from __future__ import annotations

from pytrace.core import types
from pytrace.core.types import builtin_types
from pytrace.render import percpu_merge, portable
from pytrace.render.value_types import ROWS
from pytrace.results import columns, joining
from tests.support import encode
from tests.support.rows import each_row


def test_every_type_has_a_row() -> None:
    lacking = [kind.__name__ for kind in types.ALL if kind not in ROWS]
    assert not lacking, "rows of pytrace/render/value_types.py"
    assert set(ROWS) == set(types.ALL)


def test_every_type_has_a_row_in_the_tests() -> None:
    lacking = [kind.__name__ for kind in types.ALL if kind not in encode.ROWS]
    assert not lacking, "rows of tests/support/encode.py"


@each_row("kind", types.ALL, ids=lambda kind: kind.__name__)
def test_what_snapshots_hold_has_a_way_back(kind: type[types.Type]) -> None:
    row = ROWS[kind]
    changed = row.portable is not portable.same
    # Stacks stay as they are in snapshots: the names of snapshots print them.
    assert (row.restored is not portable.same) == (changed and kind is not types.Stack), "portable and restored"
    if row.portable in (portable.printed, portable.string):
        assert row.restored in (portable.restored_text, portable.restored_inet, portable.restored_mac)


@each_row("kind", types.ALL, ids=lambda kind: kind.__name__)
def test_what_is_resolved_late_is_traced(kind: type[types.Type]) -> None:
    row = ROWS[kind]
    if row.portable is portable.printed and not row.durable:
        assert row.traced, "a name may have control characters"


@each_row("kind", types.ALL, ids=lambda kind: kind.__name__)
def test_aggregations_merge_by_a_row_of_their_own(kind: type[types.Type]) -> None:
    row = ROWS[kind]
    aggregation = row.merging not in (percpu_merge.SINGLE, percpu_merge.RANKED, percpu_merge.NUMBER)
    assert aggregation is issubclass(kind, builtin_types.Aggregate)
    assert (row.merging in joining.ROWS) is aggregation, "row of pytrace/results/joining.py"
    assert row.held in columns.ROWS, "row of pytrace/results/columns.py"
