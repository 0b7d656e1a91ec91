from __future__ import annotations

import errno
import os
import signal

from pytrace.core.options import option_values
from tests.support.rows import each_row


@each_row(
    ("name", "text", "value"),
    [
        ("0..", "0", 0),
        ("0..", "-1", None),
        ("0..", "x", None),
        ("1..64", "64", 64),
        ("1..64", "65", None),
        ("-5..5", "-5", -5),
        ("seconds", "0", 0),
        ("seconds", "2", 2_000_000_000),
        ("seconds", "0.5", 500_000_000),
        ("seconds", ".25", 250_000_000),
        ("seconds", "1.0000000019", 1_000_000_001),
        ("seconds", "500ms", 500_000_000),
        ("seconds", "2m", 120_000_000_000),
        ("seconds", "-1", None),
        ("seconds", "1e3", None),
        ("seconds", ".", None),
        ("seconds", "9" * 20, None),
        ("interval", "0.5", 500_000_000),
        ("interval", "0", None),
        ("interval", "0.0000001", None),
        ("pid", "1", 1),
        ("pid", "0", None),
        ("pid", "9999999", None),
        ("port", "80", 80),
        ("port", "http", None),
        ("port", "65536", None),
        ("cpu", "0", 0),
        ("cpu", "-1", None),
        ("disk", "/dev/sda", "sda"),
        ("disk", "nvme0n1", "nvme0n1"),
        ("disk", "a/b", None),
        ("interface", "eth0.5", "eth0.5"),
        ("interface", "a/b", None),
        ("comm", "fifteen_bytes_x", "fifteen_bytes_x"),
        ("comm", "Web Content", "Web Content"),
        ("comm", "sixteen_bytes_xx", None),
        ("comm", "", None),
        ("directory", "/proc/../proc/", "/proc"),
        ("directory", "/proc/version", None),
        ("netns", "4026531840", 4026531840),
        ("netns", "/proc/self/ns/net", os.stat("/proc/self/ns/net").st_ino),
        ("netns", "no such", None),
        ("netns", "0", None),
        ("address", "::FFFF", "::ffff"),
        ("address", "1.2.3.400", None),
        ("errno", "ENOENT", errno.ENOENT),
        ("errno", "enoent", errno.ENOENT),
        ("errno", "EWOULDBLOCK", errno.EAGAIN),
        ("errno", "512", 512),
        ("errno", "EFOO", None),
        ("errno", "0", None),
        ("signal", "SIGKILL", signal.SIGKILL),
        ("signal", "term", signal.SIGTERM),
        ("signal", "64", 64),
        ("signal", "SIGNO", None),
        ("syscall", "openat", "openat"),
        ("syscall", "open at", None),
    ],
)
def test_entries(name: str, text: str, value: int | str | None) -> None:
    type_ = option_values.find_type(name)
    assert type_ is not None
    assert type_.entry(text) == value


def test_unknown_types() -> None:
    assert option_values.find_type("ports") is None
    assert option_values.find_type("0...") is None


def test_suggestions_are_names_of_the_type() -> None:
    assert option_values.suggestions(option_values.TYPES["errno"], "enoentt")[0].startswith("did you mean 'ENOENT'")
    assert option_values.suggestions(option_values.TYPES["port"], "http") == ()


def test_defaults_of_times_are_seconds() -> None:
    assert option_values.default_of_type("seconds", 5) == 5_000_000_000
    assert option_values.default_of_type("interval", 0) == 0
    assert option_values.default_of_type("port", 5) == 5


def test_numbers() -> None:
    assert {name for name in option_values.TYPES if not option_values.is_number(name)} == {
        "disk", "interface", "address", "syscall", "comm", "directory",
    }  # fmt: skip
    assert option_values.is_number("0..5")
