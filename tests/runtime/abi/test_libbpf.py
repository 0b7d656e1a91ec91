"""pytrace.runtime.abi.libbpf: a library that is missing, broken or old, error policies, and captured messages."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import libbpf
from pytrace.runtime.abi.libbpf import DEBUG, INFO, WARN, Library, Messages


@pytest.fixture
def anew() -> Iterator[None]:
    """The library is loaded anew in the test, and after it."""
    libbpf.library.cache_clear()
    yield
    libbpf.library.cache_clear()


def test_a_missing_library_names_the_package(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "LIBRARY", "libnothing.so.9")
    with pytest.raises(TraceError, match=r"^the library libnothing.so.9 is not installed\n") as raised:
        libbpf.library()
    assert "apt-get install libbpf1" in raised.value.hints[0]


def test_a_library_that_cannot_be_loaded_says_why(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str, **_options: object) -> ctypes.CDLL:
        raise OSError("libbpf.so.1: invalid ELF header")

    monkeypatch.setattr(ctypes, "CDLL", broken)
    with pytest.raises(TraceError, match=r"cannot be loaded: libbpf.so.1: invalid ELF header"):
        libbpf.library()


def test_a_library_that_lacks_a_function_is_too_old(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: SimpleNamespace())
    with pytest.raises(TraceError, match=r"the installed libbpf.so.1 is too old: .*libbpf_version_string") as raised:
        libbpf.library()
    assert raised.value.hints == ("libbpf 1.1 or newer is needed",)


def test_a_function_that_is_not_declared_cannot_be_called() -> None:
    with pytest.raises(AttributeError, match="bpf_program__attach is not declared"):
        libbpf.library().bpf_program__attach(0)


def test_the_version() -> None:
    assert libbpf.version().startswith("v1.")


# ---------------------------------------------------------------------------------------------- policies


def named(name: str) -> Any:
    """Stands for the function of that name."""
    return SimpleNamespace(__name__=name)


def policy(name: str) -> Callable[[Any], Any]:
    check = libbpf.FUNCTIONS[name][2]
    return lambda result: check(result, named(name), ())


def test_negative_results_are_error_numbers() -> None:
    check = policy("bpf_object__load")
    assert (check(0), check(7)) == (0, 7)
    with pytest.raises(FileNotFoundError, match="bpf_object__load: No such file or directory"):
        check(-errno.ENOENT)


def test_null_is_an_error_that_errno_tells() -> None:
    check = policy("bpf_object__open_mem")
    assert check(0x1000) == 0x1000
    ctypes.set_errno(errno.ENOMEM)
    with pytest.raises(OSError, match="bpf_object__open_mem: Cannot allocate memory") as raised:
        check(None)
    assert raised.value.errno == errno.ENOMEM


def test_the_end_of_an_iteration_is_an_answer() -> None:
    assert policy("bpf_object__next_map")(None) is None


def test_functions_without_a_result_have_no_policy_to_break() -> None:
    assert all(
        row[2] is libbpf._as_is for row in libbpf.FUNCTIONS.values() if row[0] in (None, ctypes.c_char_p, ctypes.c_bool)
    )


def test_policies_are_those_of_the_loaded_functions() -> None:
    class Handle:
        def __getattr__(self, name: str) -> Any:
            found = named(name)
            setattr(self, name, found)
            return found

    made = Library(Handle())  # type: ignore[arg-type]
    for name, (result, arguments, check) in libbpf.FUNCTIONS.items():
        function = getattr(made, name)
        assert (function.restype, function.argtypes, function.errcheck) == (result, arguments, check), name


# ---------------------------------------------------------------------------------------------- messages


def test_what_cannot_be_opened_is_told_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with Messages() as messages, pytest.raises(OSError, match="bpf_object__open_mem"):
        libbpf.open_memory(b"no ELF file")
    assert messages.warnings
    assert not any(text.startswith("libbpf: ") or text.endswith("\n") for text in messages.warnings)
    assert capfd.readouterr() == ("", "")


def test_debug_text_is_taken_for_those_who_look_at_it() -> None:
    seen: list[str] = []
    for echo in (None, seen.append):
        with Messages(echo) as messages, pytest.raises(OSError, match="open_mem"):
            libbpf.open_memory(b"no ELF file")
        levels = {level for level, _ in messages.lines}
        assert WARN in levels
        assert INFO not in levels
        assert (DEBUG in levels) is (echo is not None)
    assert seen == [text for _, text in messages.lines]
    assert messages.warnings == [text.removeprefix("libbpf: ") for level, text in messages.lines if level == WARN]
    assert len(messages.warnings) < len(messages.lines)


def test_messages_go_back_to_whom_they_went_before() -> None:
    with Messages() as outer:
        with Messages() as inner, pytest.raises(OSError, match="open_mem"):
            libbpf.open_memory(b"x")
        assert inner.lines
        assert outer.lines == []
        with pytest.raises(OSError, match="open_mem"):
            libbpf.open_memory(b"x")
        assert outer.lines


def test_type_information_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[bytes, bytes | None, int]] = []

    def take(elf: bytes, size: int, options: Any) -> int:
        found = options._obj
        given.append((elf[:size], found.btf_custom_path, found.sz))
        return 7

    monkeypatch.setattr(libbpf, "library", lambda: SimpleNamespace(bpf_object__open_mem=take))
    assert libbpf.open_memory(b"data") == libbpf.open_memory(b"data", "/tmp/\udcff") == 7
    size = ctypes.sizeof(libbpf.OpenOptions)
    assert given == [(b"data", None, size), (b"data", os.fsencode("/tmp/\udcff"), size)]


def test_messages_of_several_threads_do_not_mix() -> None:
    """libbpf has one function that prints: a second thread that takes it over waits."""
    inside = threading.Event()

    def work() -> None:
        with Messages():
            inside.set()

    thread = threading.Thread(target=work)
    with Messages(), Messages():
        thread.start()
        assert not inside.wait(0.1)
    thread.join(30)
    assert inside.is_set()


def test_an_interrupt_within_a_message_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is raised in whatever Python code runs next, which may be what C code calls."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    hook = sys.unraisablehook
    libbpf.library()
    monkeypatch.setattr(ctypes, "create_string_buffer", interrupted)
    with pytest.raises(KeyboardInterrupt), Messages():
        libbpf.open_memory(b"no ELF file")
    assert sys.unraisablehook is hook
    with Messages():  # It is given back all the same.
        pass
