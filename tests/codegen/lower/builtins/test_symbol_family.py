"""Addresses, symbols and registers."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.diagnostics import TraceError
from tests.codegen.running import compiled, machine, messages, printed, ran
from tests.support.facts import RecordedKernel
from tests.support.recorded import SYMBOLS, Facts


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("print(is_err(0 - pid + 200));", False),
        ("print(is_err(4320 - pid));", True),
        ("print(is_err(226 - pid));", True),
        ("print(is_err(225 - pid));", False),
        ("print((uint64)kptr(pid));", 4321),
        ("print((uint64)uptr(pid));", 4321),
        ('print(kaddr("vfs_read"));', SYMBOLS["vfs_read"]),
    ],
)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_symbols_are_sent_as_addresses() -> None:
    assert printed("print(ksym(pid));") == [struct.pack("<Q", 4321)]
    assert printed("print(usym(5));") == [struct.pack("<QII", 5, 4321, 0)]


@pytest.mark.parametrize(("cpu", "wanted"), [(0, 1005), (3, 1008), (4, 0), (-1, 0)])
def test_variables_of_each_cpu(cpu: int, wanted: int) -> None:
    # The table lies in the region that comes after those of the program.
    probe = machine(f'begin {{ print(percpu_kaddr("jiffies_64", {cpu} + pid - 4321)); }}', WithTable())
    table = probe.region(struct.pack("<4Q", 5, 6, 7, 8))
    found = machine(f'begin {{ print(percpu_kaddr("jiffies_64", {cpu} + pid - 4321)); }}', WithTable(table))
    assert found.region(struct.pack("<4Q", 5, 6, 7, 8)) == table
    found.run()
    assert found.printed() == [wanted]


class WithTable(Facts):
    def __init__(self, table: int = 0x1000) -> None:
        super().__init__()
        self.table = table

    def kernel_symbol(self, name: str) -> int | None:
        return {"__per_cpu_offset": self.table, "jiffies_64": 1000}.get(name)


def test_kernels_without_the_table() -> None:
    with pytest.raises(TraceError, match="__per_cpu_offset"):
        compiled('begin { print(percpu_kaddr("jiffies_64")); }')


def test_addresses_in_a_running_binary_are_moved() -> None:
    """By as much as the probe is elsewhere than in the file."""
    found = ran(
        'uprobe:/bin/true:main { print((uint64)uaddr("counter")); }', helpers={173: lambda *_: 0x555000 + 0x1000}
    )
    assert found.printed() == [0x555000 + 0x4000]


def test_the_number_of_a_goroutine() -> None:
    """Read through r14, which has the goroutine's address in functions of Go."""
    found = machine("uprobe:/bin/app:work { print(goid); }", RecordedKernel(goroutines={"/bin/app": 24}))
    context = bytearray(168)
    context[8:16] = found.region(bytes(24) + (17).to_bytes(8, "little") + bytes(8)).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [17]


def test_goroutines_of_different_versions() -> None:
    kernel = RecordedKernel(goroutines={"/bin/app": 24, "/bin/other": 32}, files={"*": ["/bin/app", "/bin/other"]})
    kernel.symbols["/bin/other"] = kernel.symbols["/bin/app"]
    (message,) = messages("uprobe:*:work { print(goid); }", kernel)
    assert message == "goid is at different places in the binaries of this probe"
