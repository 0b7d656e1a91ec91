"""Maps of tools whose keys are addresses: an entry goes when the object does, as its memory is used again."""

from __future__ import annotations

import re
from pathlib import Path

import pytrace
from tests.support.rows import each_row

SCRIPTS = sorted((Path(pytrace.__file__).parent / "tools").rglob("*.bt"))

_STORE = re.compile(r"@(\w+)\[([^\]]+)\] = ")
_ADDRESS = re.compile(r"\(uint64\)[$a-z]|\barg\d\b|file_key\(")

NO_OBJECTS = {
    ("cpufreq", "changes"): "a frequency",
    ("skbdrop", "drops"): "an address of code",
    ("uobjnew", "sizes"): "a size",
}
"""Keys that look like addresses of objects and are none."""


@each_row("script", SCRIPTS, ids=lambda path: path.stem)
def test_entries_of_objects_are_deleted(script: Path) -> None:
    text = script.read_text()
    keyed = {map_ for map_, key in _STORE.findall(text) if _ADDRESS.search(key)}
    kept = [map_ for map_ in keyed if f"delete(@{map_}" not in text and (script.stem, map_) not in NO_OBJECTS]
    assert not kept


def test_objects_are_found() -> None:
    found = {
        (script.stem, map_)
        for script in SCRIPTS
        for map_, key in _STORE.findall(script.read_text())
        if _ADDRESS.search(key)
    }
    assert {("block_requests", "requests"), ("socket_owner", "owner_of_socket"), ("page_cache", "fresh")} <= found
