"""LLVM through the C functions of llvmlite's library.

llvmlite's Python package sets up hundreds of functions, and imports its IR classes, ``importlib.resources``,
``zipfile`` and ``threading``: 30 ms of each compiled start. pytrace calls two dozen of the functions. Their
parameters belong to a release, so this module serves the releases that it knows;
:mod:`pytrace.codegen.ir.llvm_package` serves all others.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

from pytrace.base import fast_ctypes as ctypes
from pytrace.base.fast_typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import TracebackType

KNOWN = "0.50."
"""Releases of llvmlite whose functions have the parameters below."""

_POINTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_INT = ctypes.c_int

_MADV_DONTNEED = 4

_FUNCTIONS: dict[str, tuple[object, ...]] = {
    # Result, then parameters.
    "GetVersionInfo": (ctypes.c_uint,),
    "InitializeAllTargetInfos": (None,),
    "InitializeAllTargets": (None,),
    "InitializeAllTargetMCs": (None,),
    "InitializeAllAsmPrinters": (None,),
    "SetCommandLine": (None, _TEXT, _TEXT),
    "GetGlobalContext": (_POINTER,),
    "GetTargetFromTriple": (_POINTER, _TEXT, _OUT),
    "CreateTargetMachine": (_POINTER, _POINTER, _TEXT, _TEXT, _TEXT, _INT, _TEXT, _TEXT, _INT, _INT, _TEXT),
    "ParseAssembly": (_POINTER, _POINTER, _TEXT, _OUT),
    "VerifyModule": (ctypes.c_bool, _POINTER, _OUT),
    "PrintModuleToString": (None, _POINTER, _OUT),
    "DisposeModule": (None, _POINTER),
    "DisposeString": (None, _POINTER),
    "CreatePipelineTuningOptions": (_POINTER,),
    "PTOSetLoopVectorization": (None, _POINTER, ctypes.c_bool),
    "PTOSetSLPVectorization": (None, _POINTER, ctypes.c_bool),
    "DisposePipelineTuningOptions": (None, _POINTER),
    "CreatePassBuilder": (_POINTER, _POINTER, _POINTER),
    "DisposePassBuilder": (None, _POINTER),
    "buildPerModuleDefaultPipeline": (_POINTER, _POINTER, _INT),
    "RunNewModulePassManager": (None, _POINTER, _POINTER, _POINTER),
    "DisposeNewModulePassManger": (None, _POINTER),
    "TargetMachineEmitToMemory": (_POINTER, _POINTER, _POINTER, _INT, _OUT),
    "GetBufferStart": (_POINTER, _POINTER),
    "GetBufferSize": (ctypes.c_size_t, _POINTER),
    "DisposeMemoryBuffer": (None, _POINTER),
}


class Module(Protocol):
    """A module in LLVM's memory, until the end of its ``with`` block; ``str()`` gives its IR."""

    def __enter__(self) -> Module: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def verify(self) -> None:
        """Raise RuntimeError if the module is not valid."""


class Machine(Protocol):
    """A target with its options."""

    def optimise(self, module: Module) -> None:
        """Run the -O2 pipeline without vectorisation, the target's own passes included."""

    def emit_object(self, module: Module) -> bytes:
        """The ELF object."""

    def emit_assembly(self, module: Module) -> str:
        """The assembly text."""


class Llvm(Protocol):
    """What pytrace needs of LLVM."""

    version: str

    def set_option(self, option: str) -> None:
        """Set an option of LLVM's command line for this process."""

    def machine(self, triple: str, cpu: str) -> Machine:
        """The machine of a target, for -O2."""

    def parse(self, text: str) -> Module:
        """The module of IR *text*; RuntimeError if it is not valid."""


def path() -> str | None:
    """The library of an installed release that this module knows."""
    for folder in sys.path:
        package = os.path.join(folder, "llvmlite")
        try:
            with open(os.path.join(package, "_version.py"), encoding="utf-8") as file:
                known = f"version_version = '{KNOWN}" in file.read()
        except OSError:
            continue
        library = os.path.join(package, "binding", "libllvmlite.so")
        return library if known and os.path.exists(library) else None
    return None


class Library:
    """The library at a path. One thread at a time calls it, as LLVM's global context has no locks."""

    def __init__(self, place: str) -> None:
        self._functions = ctypes.CDLL(place)
        self._place = os.path.realpath(place)
        self._lock = RLock()
        version = self.call("GetVersionInfo")
        self.version = ".".join(str(version >> shift & 0xFF) for shift in (16, 8, 0))

    def _release(self) -> None:
        """Unmap the pages of LLVM's code that only its initialisation needed: half of the memory of a small script.

        They come back from the page cache when they are used again. Other pages of the library may be written.
        """
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
                ranges = [line.split()[0] for line in file if " r-xp " in line and line.rstrip().endswith(self._place)]
        except OSError:
            return
        for text in ranges:
            start, _, end = text.partition("-")
            address = int(start, 16)
            self._functions.madvise(_POINTER(address), ctypes.c_size_t(int(end, 16) - address), _MADV_DONTNEED)

    def call(self, name: str, *values: object) -> int:
        """Call the function ``LLVMPY_NAME``; pointers are integers, null and no result are 0."""
        function = getattr(self._functions, f"LLVMPY_{name}")
        if function.argtypes is None:
            function.restype, *function.argtypes = _FUNCTIONS[name]
        with self._lock:
            return function(*values) or 0

    def with_text(self, name: str, *values: object) -> tuple[int, str]:
        """Call a function whose last parameter is where it leaves a text; returns its result and the text."""
        place = ctypes.c_void_p()
        result = self.call(name, *values, ctypes.byref(place))
        if not place.value:
            return result, ""
        text = ctypes.string_at(place.value).decode()
        self.call("DisposeString", place)
        return result, text

    def set_option(self, option: str) -> None:
        """Set an option of LLVM's command line for this process."""
        self.call("SetCommandLine", b"pytrace", option.encode())

    def machine(self, triple: str, cpu: str) -> Machine:
        """The machine of a target, for -O2."""
        for step in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
            self.call(f"InitializeAll{step}")
        self._release()
        target, message = self.with_text("GetTargetFromTriple", triple.encode())
        if not target:
            raise RuntimeError(message)
        words = triple.encode(), cpu.encode(), b"", 2, b"default", b"default", 0, 0, b""
        machine = self.call("CreateTargetMachine", target, *words)
        if not machine:
            raise RuntimeError(f"LLVM has no machine {cpu} of target {triple}")
        return _Machine(self, machine)

    def parse(self, text: str) -> Module:
        """The module of IR *text*."""
        module, message = self.with_text("ParseAssembly", self.call("GetGlobalContext"), text.encode())
        made = _Module(self, module)
        if message:
            made.close()
            raise RuntimeError(f"LLVM IR parsing error\n{message}")
        return made


class _Module:
    def __init__(self, library: Library, pointer: int) -> None:
        self.library = library
        self.pointer = pointer

    def close(self) -> None:
        """Free the module."""
        if self.pointer:
            self.library.call("DisposeModule", self.pointer)
        self.pointer = 0

    def __enter__(self) -> Module:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return self.library.with_text("PrintModuleToString", self.pointer)[1]

    def verify(self) -> None:
        """Raise RuntimeError if the module is not valid."""
        wrong, message = self.library.with_text("VerifyModule", self.pointer)
        if wrong:
            raise RuntimeError(message)


class _Machine:
    def __init__(self, library: Library, pointer: int) -> None:
        self.library = library
        self.pointer = pointer

    def optimise(self, module: Module) -> None:
        """Run the -O2 pipeline."""
        assert isinstance(module, _Module)
        call = self.library.call
        options = call("CreatePipelineTuningOptions")
        call("PTOSetLoopVectorization", options, False)
        call("PTOSetSLPVectorization", options, False)
        builder = call("CreatePassBuilder", self.pointer, options)
        passes = call("buildPerModuleDefaultPipeline", builder, 2)
        call("RunNewModulePassManager", passes, module.pointer, builder)
        call("DisposeNewModulePassManger", passes)
        call("DisposePassBuilder", builder)
        call("DisposePipelineTuningOptions", options)

    def _emit(self, module: Module, *, as_object: bool) -> bytes:
        assert isinstance(module, _Module)
        library = self.library
        buffer, message = library.with_text(
            "TargetMachineEmitToMemory", self.pointer, module.pointer, 1 if as_object else 0
        )
        if not buffer:
            raise RuntimeError(message)
        data = ctypes.string_at(library.call("GetBufferStart", buffer), library.call("GetBufferSize", buffer))
        library.call("DisposeMemoryBuffer", buffer)
        return data

    def emit_object(self, module: Module) -> bytes:
        """The ELF object."""
        return self._emit(module, as_object=True)

    def emit_assembly(self, module: Module) -> str:
        """The assembly text."""
        return self._emit(module, as_object=False).decode()
