from __future__ import annotations

import pytest

from pytrace.interface.listing import Argument, _argument, features, probes


@pytest.mark.parametrize(
    ("text", "name", "type_"),
    [
        ("int fd", "fd", "int"), ("const char * filename", "filename", "const char *"),
        ("struct file *f", "f", "struct file *"), ("unsigned long name[8]", "name", "unsigned long[8]"),
        ("char comm[16];", "comm", "char[16]"), ("u64 a_1", "a_1", "u64"),
    ],
)  # fmt: skip
def test_names_and_types_of_arguments(text: str, name: str, type_: str) -> None:
    assert _argument(text) == Argument(name, type_)


@pytest.mark.kernel
def test_probes_that_match() -> None:
    found = list(probes("tracepoint:syscalls:sys_enter_open*"))
    names = [probe.name for probe in found]
    assert "tracepoint:syscalls:sys_enter_openat" in names
    assert len(names) == len(set(names))
    openat = found[names.index("tracepoint:syscalls:sys_enter_openat")]
    assert (openat.kind, str(openat)) == ("tracepoint", openat.name)
    assert Argument("filename", "const char *") in openat.arguments


@pytest.mark.kernel
def test_features_are_tried_out() -> None:
    assert features()["ringbuf"] is True
