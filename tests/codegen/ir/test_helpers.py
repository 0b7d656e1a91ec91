from __future__ import annotations

from pytrace.codegen.ir.helpers import HELPERS, PROBE_READ_KERNEL, RINGBUF_SUBMIT, trace_printk


def test_each_helper_has_one_row() -> None:
    numbers = [row.number for row in HELPERS.values()]
    assert len(numbers) == len(set(numbers))
    assert all(name == row.name for name, row in HELPERS.items())


def test_rows_say_what_is_passed() -> None:
    assert PROBE_READ_KERNEL.parameters == ("ptr", "i64", "i64")
    assert PROBE_READ_KERNEL.gives
    assert PROBE_READ_KERNEL.symbol == "bpf_probe_read_kernel"
    assert not RINGBUF_SUBMIT.gives


def test_lines_of_the_kernels_trace_have_values() -> None:
    assert trace_printk(0).parameters == ("ptr", "i64")
    assert trace_printk(3).parameters == ("ptr", "i64", "i64", "i64", "i64")
