"""pytrace.runtime.host.kallsyms on texts made by hand and on this machine's own."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest

from pytrace.runtime.host.kallsyms import KERNEL_HALF, Kallsyms, KernelPlace

TEXT = """\
0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_number
ffffffff81000000 T startup
ffffffff81000000 T startup_alias
ffffffff81000100 t helper
ffffffff81000200 W weak_one
ffffffff81000300 D table
ffffffff81000400 T rcu_read
ffffffff81000500 T _end
ffffffffc0001000 t mod_init\t[mod]
ffffffffc0000100 T helper\t[mod]
ffffffffc0002000 t bpf_prog_6deef7357e7b4530_trace\t[bpf]
"""
MODULES = "mod 16384 0 - Live 0xffffffffc0000000 (E)\n"


@pytest.fixture
def symbols(tmp_path: Path) -> Kallsyms:
    (tmp_path / "kallsyms").write_text(TEXT)
    (tmp_path / "modules").write_text(MODULES)
    return Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "modules"))


def test_addresses(symbols: Kallsyms) -> None:
    assert symbols.address("helper") == 0xFFFFFFFF81000100
    assert symbols.address("mod_init") == 0xFFFFFFFFC0001000
    assert symbols.address("help") is None


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (0xFFFFFFFF81000000, KernelPlace("startup", 0, "")),
        (0xFFFFFFFF810000FF, KernelPlace("startup", 0xFF, "")),
        (0xFFFFFFFF81000100, KernelPlace("helper", 0, "")),
        (0xFFFFFFFF81000504, KernelPlace("_end", 4, "")),
        (0xFFFFFFFFC0000150, KernelPlace("helper", 0x50, "mod")),
        (0xFFFFFFFFC0001010, KernelPlace("mod_init", 0x10, "mod")),
        (0xFFFFFFFFC0000050, None),
        (0xFFFFFFFFC0004001, KernelPlace("bpf_prog_6deef7357e7b4530_trace", 0x2001, "bpf")),
        (0xFFFFFFFF80FFFFFF, None),
        (0xFFFFFFFF82000000, None),
        (0x1008, None),
        (0, None),
    ],
)
def test_places(symbols: Kallsyms, address: int, place: KernelPlace | None) -> None:
    assert symbols.place(address) == place


def test_owners_of_functions(symbols: Kallsyms) -> None:
    assert symbols.owners("helper") == ["", "mod"]
    assert symbols.owners("helper", "vmlinux") == [""]
    assert symbols.owners("helper", "mod") == ["mod"]
    assert symbols.owners("help") == []
    assert symbols.owners("table") == [], "data is no function"
    assert symbols.owners("rcu_read") == [""]
    assert symbols.owners("rcu_read", without="rcu_") == []


def test_all_functions(symbols: Kallsyms) -> None:
    lists = symbols.function_lists(without="rcu_")
    assert [name for name in lists[""] if "_" in name] == ["startup_alias", "weak_one", "_end"]
    assert "helper" in lists["mod"]
    assert "table" not in lists[""]


def test_sizes(symbols: Kallsyms) -> None:
    assert symbols.function_size("startup") == 0x100
    assert symbols.function_size("helper", "mod") == 0xF00
    assert symbols.function_size("missing") is None


def test_hidden_addresses_are_no_addresses(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_text("0000000000000000 T startup\n0000000000000000 t helper\n")
    symbols = Kallsyms(str(tmp_path / "kallsyms"))
    assert symbols.hidden
    assert symbols.address("helper") is None
    assert symbols.owners("helper") == [""]
    assert "CAP_SYSLOG" in symbols.withheld or "kptr_restrict" in symbols.withheld
    assert [symbols.has(name) for name in ("helper", "mod_init", "help", "startup")] == [True, False, False, True]


def test_shown_addresses_are_not_withheld(symbols: Kallsyms, tmp_path: Path) -> None:
    assert symbols.withheld == ""
    (tmp_path / "empty").touch()
    assert Kallsyms(str(tmp_path / "empty")).withheld == "", "a kernel without symbols hides nothing"


def test_this_kernel_against_a_plain_search() -> None:
    symbols = Kallsyms()
    if symbols.hidden:
        pytest.skip("this user may not see kernel addresses")
    rows = [line.split() for line in symbols.text.decode().splitlines() if "\t" not in line]
    rows = [row for row in rows if int(row[0], 16) >= KERNEL_HALF]
    addresses = [int(row[0], 16) for row in rows]
    assert addresses == sorted(addresses)
    chance = random.Random(1)
    for _ in range(500):
        address = chance.randrange(addresses[0], addresses[-1])
        first = bisect_left(addresses, addresses[bisect_right(addresses, address) - 1])
        assert symbols.place(address) == KernelPlace(rows[first][2], address - addresses[first], "")


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_bytes(b"ffffffff81000000 T _text\nffffffffc0000100 t a\xff\x0b\x85b\t[m\xfe]\n")
    (tmp_path / "modules").write_bytes(b"m\xfe 16384 0 - Live 0xffffffffc0000000 (E)\nnonsense\n\n")
    found = Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "modules"))
    name, module = b"a\xff\x0b\x85b".decode(errors="surrogateescape"), "m\udcfe"
    assert found.place(0xFFFFFFFFC0000104) == KernelPlace(name, 4, module)
    assert found.owners(name) == [module]
    assert found.function_lists("__")[""] == ["_text"]
    assert found.module_start(module) == 0xFFFFFFFFC0000000
