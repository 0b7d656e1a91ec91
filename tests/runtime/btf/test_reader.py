"""pytrace.runtime.btf.reader: names, kinds and ids of types, split BTF, the kept index."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.base import private_files
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.btf.reader import Btf, Kind
from pytrace.runtime.host import fingerprints
from tests.support.btf_builder import BtfBuilder


def _base() -> BtfBuilder:
    builder = BtfBuilder()
    number = builder.integer("int", 4, 1)
    builder.struct("node", 16, ("value", number, 0), ("name", number, 64))
    builder.add(Kind.TYPEDEF, "name", number)
    builder.function("act", builder.prototype(number, ("node", number)))
    return builder


def test_types_are_found_by_name_and_kind() -> None:
    btf = Btf(_base().build())
    assert btf.end_id == 6
    assert btf.find("int", Kind.INT) == 1
    assert btf.find("node", Kind.STRUCT) == 2
    assert btf.find("node", Kind.UNION) == 0
    assert btf.find("name", Kind.TYPEDEF) == 3, "members of that name are no types"
    assert btf.find("nam", Kind.TYPEDEF) == 0
    assert btf.find("", Kind.FUNC_PROTO) == 0
    assert [btf.type_name(i) for i in range(6)] == ["void", "int", "node", "name", "", "act"]
    assert btf.names(Kind.STRUCT, Kind.FUNC) == ["node", "act"]


def test_names_that_end_alike_are_told_apart() -> None:
    builder = BtfBuilder()
    builder.integer("long int", 8, 1)
    builder.integer("int", 4, 1)
    btf = Btf(builder.build())
    assert btf.find("int", Kind.INT) == 2


def test_strings_with_prefix() -> None:
    builder = BtfBuilder()
    number = builder.integer("int", 4, 1)
    for name in ("btf_trace_one", "other_btf_trace_x", "btf_trace_two"):
        builder.add(Kind.TYPEDEF, name, number)
    assert Btf(builder.build()).strings_with_prefix("btf_trace_") == ["btf_trace_one", "btf_trace_two"]


def test_module_types_build_on_the_kernel() -> None:
    base = Btf(_base().build())
    builder = BtfBuilder(first=base.end_id, first_string=base.end_string)
    # The first string of a module is not empty, and its types may use the kernel's strings and types.
    builder.struct("holder", 8, ("value", 1, 0))
    module = Btf(builder.build(), "mod", base)
    assert module.find("holder", Kind.STRUCT) == 6
    assert module.find("node", Kind.STRUCT) == 0, "only what the module defines"
    assert module.type_name(2) == "node"
    assert module.type_name(6) == "holder"
    assert module.kind(2) == Kind.STRUCT
    assert module.owner(2) is base


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"\x7fELF" + bytes(40), "magic"),
        (_base().build()[:-5], "truncated"),
    ],
)
def test_damaged_data_is_named(data: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Btf(data)


def test_index_is_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = _base().build()
    assert Btf(data, index="sample").find("int", Kind.INT) == 1
    kept = Path(private_files.directory(fingerprints.KEPT)) / "sample"
    assert kept.stat().st_mode & 0o077 == 0
    assert Btf(data, index="sample").find("act", Kind.FUNC) == 5
    kept.write_bytes(kept.read_bytes()[:-3])
    assert Btf(data, index="sample").find("act", Kind.FUNC) == 5, "a damaged index is made again"
    Path(private_files.directory(fingerprints.KEPT)).chmod(0o777)
    assert fingerprints.read_kept("sample") is None, "others could have written it"


def test_kernel_lookup_is_quick() -> None:
    path = Path("/sys/kernel/btf/vmlinux")
    if not path.exists():
        pytest.skip("this kernel shows no type information")
    btf = Btf(path.read_bytes())
    task = btf.find("task_struct", Kind.STRUCT)
    assert task
    assert btf.type_name(task) == "task_struct"
    assert btf.find("vfs_read", Kind.FUNC)


def test_a_module_is_not_indexed_for_a_name_that_it_lacks() -> None:
    base = Btf(_base().build())
    builder = BtfBuilder(first=base.end_id, first_string=base.end_string)
    builder.struct("holder", 8, ("value", 1, 0))
    module = Btf(builder.build(), "mod", base)
    assert module.find("nothing", Kind.STRUCT) == 0
    assert module.find("node", Kind.STRUCT) == 0
    assert "_tables" not in vars(module)
    assert module.find("holder", Kind.STRUCT) == base.end_id
    assert "_tables" in vars(module)


def test_many_lookups_do_not_search_the_data_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings ask for 60,000 functions; a search for one of them takes milliseconds."""
    builder = _base()
    number = 1
    for item in range(500):
        builder.function(f"function_{item}", builder.prototype(number))
    for name in ("function_7", "function_499"):
        builder.function(name, builder.prototype(number))
    btf, other = Btf(builder.build()), Btf(builder.build())
    searches = 0
    plain = Btf.string_offsets

    def counted(self: Btf, name: str) -> Iterator[int]:
        nonlocal searches
        searches += self is btf
        return plain(self, name)

    monkeypatch.setattr(Btf, "string_offsets", counted)
    names = [*(f"function_{item}" for item in range(500)), "node", "name", "missing", "act", "value"]
    found = [btf.find(name, Kind.FUNC, Kind.STRUCT) for name in names]
    assert 0 < searches < 100
    for name, type_id in zip(names, found, strict=True):
        other._searches = 0
        assert other.find(name, Kind.FUNC, Kind.STRUCT) == type_id, name
    assert found[-3:] == [0, btf.find("act", Kind.FUNC), 0]


def test_many_lookups_in_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Btf(_base().build())
    builder = BtfBuilder(first=base.end_id, first_string=base.end_string)
    for item in range(200):
        builder.struct(f"holder_{item}", 8, ("value", 1, 0))
    module = Btf(builder.build(), "mod", base)
    for _ in range(2):
        assert [module.find(f"holder_{item}", Kind.STRUCT) for item in range(200)] == list(range(6, 206))
        assert module.find("node", Kind.STRUCT) == 0, "only what the module defines"


@pytest.mark.parametrize(("size", "message"), [(8, "truncated"), (13, "not BTF's")])
def test_types_that_are_cut_are_refused(size: int, message: str) -> None:
    builder = BtfBuilder()
    builder.integer("int", 4)
    data = bytearray(builder.build())
    struct.pack_into("=I", data, 12, size)
    with pytest.raises(TraceError, match=message):
        Btf(bytes(data)).ids(Kind.INT).__next__()
