"""The configuration: keys that a manifest of another version has or lacks."""

from __future__ import annotations

from msgspec import convert, to_builtins

from pytrace.core.config import Config


def test_what_is_written_is_read_again() -> None:
    config = Config(max_strlen=99, missing_probes="warn", cpp_demangle=False)
    assert convert(to_builtins(config), Config) == config
    assert set(to_builtins(config)) == set(Config.__struct_fields__)


def test_missing_keys_have_their_default_and_unknown_ones_are_ignored() -> None:
    assert convert({"max_strlen": 5, "from_the_future": 1}, Config) == Config(max_strlen=5)
