"""libbpf (``libbpf.so.1``, 1.1 or newer) through ctypes: opening and loading of ELF objects, nothing more.

Links, batches and information go through :mod:`pytrace.runtime.machine.bpf`.  Each function has argument types, a
result type and one error policy; libbpf's own messages are captured by :class:`Messages` and never reach the terminal
by themselves.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import suppress
from ctypes import c_bool, c_char_p, c_int, c_long, c_size_t, c_uint32, c_void_p
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Never, Protocol

from pytrace.core.diagnostics import TraceError, resource_limit
from pytrace.runtime.machine import syscalls

LIBRARY = "libbpf.so.1"

WARN, INFO, DEBUG = 0, 1, 2
"""``enum libbpf_print_level``."""

_PRINT = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)

if TYPE_CHECKING:
    from collections.abc import Callable
    from sys import UnraisableHookArgs

    class _Function(Protocol):
        """A function of the library, in messages."""

        __name__: str

    _Policy = Callable[[Never, _Function, tuple[object, ...]], object]
    """Converts the result of a function for its caller (``errcheck`` of ctypes), or raises."""


class OpenOptions(ctypes.Structure):
    """``struct bpf_object_open_opts`` up to the members that pytrace sets."""

    _fields_ = (
        ("sz", c_size_t),
        ("object_name", c_char_p),
        ("relaxed_maps", c_bool),
        ("pin_root_path", c_char_p),
        ("reserved", c_uint32),
        ("kconfig", c_char_p),
        ("btf_custom_path", c_char_p),
        ("kernel_log_buf", c_void_p),
        ("kernel_log_size", c_size_t),
        ("kernel_log_level", c_uint32),
    )


class ProgramLoadOptions(ctypes.Structure):
    """``struct bpf_prog_load_opts`` up to the members that pytrace sets."""

    _fields_ = (
        ("sz", c_size_t),
        ("attempts", c_int),
        ("expected_attach_type", c_int),
        ("prog_btf_fd", c_uint32),
        ("prog_flags", c_uint32),
        ("prog_ifindex", c_uint32),
        ("kern_version", c_uint32),
        ("attach_btf_id", c_uint32),
        ("attach_prog_fd", c_uint32),
        ("attach_btf_obj_fd", c_uint32),
    )


_PREPARE_LOAD = ctypes.CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(ProgramLoadOptions), c_long)


class HandlerOptions(ctypes.Structure):
    """``struct libbpf_prog_handler_opts``."""

    _fields_ = (
        ("sz", c_size_t),
        ("cookie", c_long),
        ("prog_setup_fn", c_void_p),
        ("prog_prepare_load_fn", _PREPARE_LOAD),
        ("prog_attach_fn", c_void_p),
    )


def _zero_or_error(result: int, function: _Function, _arguments: object) -> int:
    """Policy: a negative result is an error number."""
    if result < 0:
        raise syscalls.failure(-result, function.__name__)
    return result


def _pointer_or_error(result: int | None, function: _Function, _arguments: object) -> int:
    """Policy: NULL is an error, whose number is in ``errno``."""
    if not result:
        raise syscalls.failure(ctypes.get_errno(), function.__name__)
    return result


def _as_is(result: object, _function: object, _arguments: object) -> object:
    """Policy: every result is an answer (NULL ends an iteration, for example)."""
    return result


FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...], _Policy]] = {
    "libbpf_version_string": (c_char_p, (), _as_is),
    "libbpf_set_print": (c_void_p, (_PRINT,), _as_is),
    "libbpf_register_prog_handler": (c_int, (c_char_p, c_int, c_int, ctypes.POINTER(HandlerOptions)), _zero_or_error),
    "libbpf_find_vmlinux_btf_id": (c_int, (c_char_p, c_int), _zero_or_error),
    "bpf_object__open_mem": (c_void_p, (c_void_p, c_size_t, ctypes.POINTER(OpenOptions)), _pointer_or_error),
    "bpf_object__load": (c_int, (c_void_p,), _zero_or_error),
    "bpf_object__close": (None, (c_void_p,), _as_is),
    "bpf_object__next_program": (c_void_p, (c_void_p, c_void_p), _as_is),
    "bpf_object__next_map": (c_void_p, (c_void_p, c_void_p), _as_is),
    "bpf_linker__new": (c_void_p, (c_char_p, c_void_p), _pointer_or_error),
    "bpf_linker__add_file": (c_int, (c_void_p, c_char_p, c_void_p), _zero_or_error),
    "bpf_linker__finalize": (c_int, (c_void_p,), _zero_or_error),
    "bpf_linker__free": (None, (c_void_p,), _as_is),
    "bpf_program__name": (c_char_p, (c_void_p,), _as_is),
    "bpf_program__insns": (c_void_p, (c_void_p,), _as_is),
    "bpf_program__insn_cnt": (c_size_t, (c_void_p,), _as_is),
    "bpf_program__fd": (c_int, (c_void_p,), _zero_or_error),
    "bpf_program__set_type": (c_int, (c_void_p, c_int), _zero_or_error),
    "bpf_program__set_expected_attach_type": (c_int, (c_void_p, c_int), _zero_or_error),
    "bpf_program__set_attach_target": (c_int, (c_void_p, c_int, c_char_p), _zero_or_error),
    "bpf_program__set_flags": (c_int, (c_void_p, c_uint32), _zero_or_error),
    "bpf_program__set_autoload": (c_int, (c_void_p, c_bool), _zero_or_error),
    "bpf_program__set_log_buf": (c_int, (c_void_p, c_void_p, c_size_t), _zero_or_error),
    "bpf_program__set_log_level": (c_int, (c_void_p, c_uint32), _zero_or_error),
    "bpf_map__name": (c_char_p, (c_void_p,), _as_is),
    "bpf_map__fd": (c_int, (c_void_p,), _zero_or_error),
    "bpf_map__type": (c_int, (c_void_p,), _as_is),
    "bpf_map__key_size": (c_uint32, (c_void_p,), _as_is),
    "bpf_map__value_size": (c_uint32, (c_void_p,), _as_is),
    "bpf_map__max_entries": (c_uint32, (c_void_p,), _as_is),
    "bpf_map__set_max_entries": (c_int, (c_void_p, c_uint32), _zero_or_error),
    "bpf_map__set_map_flags": (c_int, (c_void_p, c_uint32), _zero_or_error),
    "bpf_map__set_inner_map_fd": (c_int, (c_void_p, c_int), _zero_or_error),
    "bpf_map__is_internal": (c_bool, (c_void_p,), _as_is),
}
"""Result type, argument types and error policy of every function in use."""


class Library:
    """The loaded library; its functions are attributes."""

    def __init__(self, handle: ctypes.CDLL) -> None:
        for name, (result, arguments, policy) in FUNCTIONS.items():
            function = getattr(handle, name)
            function.restype = result
            function.argtypes = arguments
            function.errcheck = policy
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"libbpf function {name} is not declared in FUNCTIONS")


@cache
def library() -> Library:
    """libbpf, loaded on the first call.

    Raises:
        TraceError: the library is not installed or lacks functions; the hint has the command that installs it.
    """
    try:
        handle = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        # dlopen(3) only has words for it.
        if os.strerror(errno.ENOENT) not in str(error):
            limit = resource_limit(error)
            raise limit or TraceError(f"the library {LIBRARY} cannot be loaded: {error}") from None
        raise TraceError(
            f"the library {LIBRARY} is not installed",
            hints=("Debian and Ubuntu: apt-get install libbpf1", "Fedora: dnf install libbpf"),
        ) from None
    try:
        found = Library(handle)
    except AttributeError as error:
        raise TraceError(
            f"the installed {LIBRARY} is too old: {error}", hints=("libbpf 1.1 or newer is needed",)
        ) from None
    if not _handlers:
        # For sections that libbpf has no handler for, as those of pytrace's programs.
        handler = HandlerOptions(ctypes.sizeof(HandlerOptions), prog_prepare_load_fn=_PREPARING)
        with suppress(OSError):  # this process has such a handler of somebody else
            found.libbpf_register_prog_handler(None, 0, 0, ctypes.byref(handler))
            _handlers.append(handler)
    return found



def version() -> str:
    """The library's version, such as ``v1.1``."""
    text: bytes = library().libbpf_version_string()
    return text.decode()


def open_memory(elf: bytes, btf_path: str = "") -> int:
    """Open an ELF object that is in memory, and return the handle of its ``struct bpf_object``.

    *btf_path* names a file with the kernel's type information, for kernels that have none of their own.

    Raises:
        OSError: libbpf cannot read it.
    """
    settings = OpenOptions(sz=ctypes.sizeof(OpenOptions), object_name=b"pytrace")
    if btf_path:
        settings.btf_custom_path = os.fsencode(btf_path)
    handle: int = library().bpf_object__open_mem(elf, len(elf), ctypes.byref(settings))
    return handle


_TYPE = 1 << 30
"""Marks the number of a type in libbpf's place for the descriptor of a program: there are no descriptors as large."""


_handlers: list[HandlerOptions] = []
"""What was registered with libbpf in this process: it takes one."""


def attach_to_type(program: int, type_id: int) -> bool:
    """Set the attach target of a tracing program by its number in the kernel's own BTF. Returns False if it cannot be.

    ``bpf_program__set_attach_target`` would read all of that for a name: 16 ms of each start. libbpf reads it for the
    program's load as well unless it attaches to another program: the number takes that one's place until then.
    """
    if _handlers:
        library().bpf_program__set_attach_target(program, _TYPE | type_id, None)
    return bool(_handlers)


def _prepare_load(_program: int, options: Any, _cookie: int) -> int:
    load = options[0]
    if load.attach_prog_fd & _TYPE:
        load.attach_btf_id, load.attach_prog_fd = load.attach_prog_fd ^ _TYPE, 0
    return 0


_PREPARING = _PREPARE_LOAD(_prepare_load)


def instructions(program: int) -> bytes:
    """The instructions of a ``struct bpf_program``, relocated if its object was loaded or refused."""
    lib = library()
    return ctypes.string_at(lib.bpf_program__insns(program), 8 * lib.bpf_program__insn_cnt(program))


_PRINTING = RLock()


class Messages:
    """Takes what libbpf would print to the terminal; a context manager, one at a time in a process.

    libbpf has one function for this, so that other threads wait here until it is theirs.

    Args:
        echo: called with each line as it comes (``-d libbpf``), or None to only keep them.
    """

    def __init__(self, echo: Callable[[str], None] | None = None) -> None:
        self.lines: list[tuple[int, str]] = []
        self._echo = echo
        self._callback = _PRINT(self._take)
        self._before: int | None = None
        self._unraisable = sys.unraisablehook
        self._raised: BaseException | None = None
        """The exception that a signal handler raised in a function that libbpf called: C code cannot pass it on."""

    def __enter__(self) -> Messages:
        _PRINTING.acquire()
        self._unraisable, sys.unraisablehook = sys.unraisablehook, self._unraised
        self._before = library().libbpf_set_print(self._callback)
        return self

    def __exit__(self, *_: object) -> None:
        library().libbpf_set_print(_PRINT(self._before) if self._before else _PRINT())
        sys.unraisablehook = self._unraisable
        _PRINTING.release()
        if self._raised is not None:
            raise self._raised

    def _unraised(self, unraisable: UnraisableHookArgs, /) -> None:
        # Python 3.13 no longer names the callback in unraisable.object, but its frame is the outermost one.
        outermost = unraisable.exc_traceback
        called = (Messages._take.__code__, _prepare_load.__code__)
        inside = outermost is not None and outermost.tb_frame.f_code in called
        if inside and isinstance(unraisable.exc_value, KeyboardInterrupt):
            self._raised = unraisable.exc_value
        else:
            self._unraisable(unraisable)

    def _take(self, level: int, form: bytes, arguments: int) -> int:
        # Debug text is formatted only when somebody looks at it: libbpf says a lot.
        if level >= DEBUG and self._echo is None:
            return 0
        buffer = ctypes.create_string_buffer(4096)
        size = syscalls.libc().vsnprintf(buffer, c_size_t(4096), form, c_void_p(arguments))
        text = buffer.value.decode(errors="replace").rstrip("\n")
        if size > 0:
            self.lines.append((level, text))
            if self._echo is not None:
                self._echo(text)
        return max(0, int(size))

    @property
    def warnings(self) -> list[str]:
        """The warnings among the lines, without their ``libbpf: `` prefix."""
        return [text.removeprefix("libbpf: ") for level, text in self.lines if level == WARN]
