"""The private parts of pyelftools that pytrace leans on are still there, and leant on in one module only."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from elftools.dwarf import abbrevtable, compileunit, die, dwarfinfo, structs
from elftools.dwarf.dwarfinfo import DwarfConfig, DWARFInfo

from pytrace.runtime.dwarf import elftools_overrides
from pytrace.runtime.dwarf.elftools_overrides import PRIVATE
from pytrace.runtime.dwarf.units import Die, Unit, UnitTable

ROOT = Path(__file__).resolve().parents[3]
MODULES: dict[str, ModuleType] = {
    "DWARFStructs": structs,
    "AbbrevTable": abbrevtable,
    "DIE": die,
    "CompileUnit": compileunit,
    "DWARFInfo": dwarfinfo,
}
EACH = [pytest.param(owner, name, id=f"{owner.__name__}.{name}") for owner, names in PRIVATE.items() for name in names]
_PRIVATE = re.compile(r"_[a-zA-Z]\w*")


def attributes(owner: type[Any]) -> set[str]:
    """Names that a class defines or its methods set."""
    set_by_methods = set(re.findall(r"self\.(\w+)\b[^=\n]*=(?!=)", inspect.getsource(owner)))
    return set_by_methods | {name for base in owner.__mro__[:-1] for name in vars(base)}


@pytest.mark.parametrize(("owner", "name"), EACH)
def test_each_private_attribute_is_there_and_used(owner: type[Any], name: str) -> None:
    assert name in attributes(owner), f"pyelftools {version('pyelftools')}: {owner.__name__}.{name} is gone"
    # An override that nothing calls any more would be as good as gone.
    source = inspect.getsource(MODULES[owner.__name__])
    assert len(re.findall(rf"(?:self|cls|\w+)\.{name}\b", source)) >= 1
    assert re.search(rf"\b{name}\b", Path(elftools_overrides.__file__).read_text().split('"""The private', 1)[1])


def test_line_programs_are_kept_where_they_are_forgotten() -> None:
    named = dict.fromkeys(list(inspect.signature(DWARFInfo.__init__).parameters)[2:])
    assert DWARFInfo(DwarfConfig(True, "x64", 8), **named)._linetable_cache == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [Die, Unit, UnitTable], ids=lambda own: own.__name__)
def test_no_other_module_overrides_what_is_private(own: type[Any]) -> None:
    """By intent or by chance: an attribute of ours with the name of one of theirs would change what they do."""
    mine = {name for name in set(vars(own)) | attributes_set(own) if _PRIVATE.fullmatch(name)}
    theirs = {
        name
        for base in own.__mro__
        if base.__module__.startswith("elftools.")
        for name in attributes(base)
        if _PRIVATE.fullmatch(name)
    }
    assert theirs
    assert not mine & theirs


def attributes_set(own: type[Any]) -> set[str]:
    return set(re.findall(r"self\.(_\w+)(?:: [^=\n]+)? = ", inspect.getsource(own)))


def test_what_leans_on_pyelftools_is_listed() -> None:
    """Each private name that the module defines or reads of its bases is in the list."""
    source = Path(elftools_overrides.__file__).read_text()
    used = set(re.findall(r"(?:def |super\(\)\.|self\.)(_[a-zA-Z]\w*)", source))
    ours = {"_data", "_known", "_at"}
    assert used - ours <= {name for names in PRIVATE.values() for name in names}
    for names in (attributes(owner) for owner in PRIVATE):
        assert not ours & names


def test_only_tested_releases_are_admitted() -> None:
    pinned = re.search(r"^pyelftools==([\d.]+)$", (ROOT / "scripts/requirements.in").read_text(), re.MULTILINE)
    admitted = re.search(r'"pyelftools>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    assert admitted is not None
    major, minor = map(int, pinned[1].split(".")[:2])
    assert admitted.groups() == (pinned[1], f"{major}.{minor + 1}")
    assert version("pyelftools") == pinned[1]
