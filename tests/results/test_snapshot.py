"""Columns of maps in answers of many hosts."""

from __future__ import annotations

from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.types.tables import key_columns
from pytrace.remote.answer import labelled
from tests.support.snapshots import COUNT, STRING, map_data, snapshot

NUMBER = types.Int(8, False)


def test_columns_after_a_label_are_those_of_one_host() -> None:
    record = types.Record(("host", "port"), (STRING, NUMBER))
    for key, names in (
        (None, ["host"]), (STRING, ["host", "key"]), (types.Tuple((STRING, NUMBER)), ["host", "key1", "key2"]),
        (record, ["host_", "host", "port"]),
    ):  # fmt: skip
        (data,) = labelled(snapshot(map_data("@", key, COUNT, {})), "host", "web1").maps.values()
        assert [column.name for column in data.key_columns] == names
        own = map_data("@", key, COUNT, {})
        assert own.key_columns == key_columns(key), "without a label as anywhere"


def test_a_label_of_keys_that_have_no_members_is_the_whole_key() -> None:
    data = replace(map_data("@", STRING, COUNT, {}), label="zone")
    assert [column.name for column in data.key_columns] == ["zone"]
