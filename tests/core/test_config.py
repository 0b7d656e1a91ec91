"""The configuration: keys that a manifest of another version has or lacks."""

from __future__ import annotations

from pytrace.core.config import Config


def test_what_is_written_is_read_again() -> None:
    config = Config(max_strlen=99, missing_probes="warn", cpp_demangle=False)
    assert Config.from_data(config.to_data()) == config
    assert set(config.to_data()) == set(Config.__struct_fields__)


def test_missing_keys_have_their_default_and_unknown_ones_are_ignored() -> None:
    assert Config.from_data({"max_strlen": 5, "from_the_future": 1}) == Config(max_strlen=5)
