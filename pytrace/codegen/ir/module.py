"""The LLVM module of one script: functions, maps, data sections, and late operands."""

from __future__ import annotations

from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.debug_info import DebugInfo
from pytrace.codegen.ir.function_text import FunctionText
from pytrace.codegen.ir.ir_values import Late, Ptr, global_pointer
from pytrace.codegen.ir.target import TRIPLE
from pytrace.core.manifest import LOAD_TIME_SECTION, RING, MapType
from pytrace.core.source import Source, Span
from pytrace.core.types import Type

PERCPU = "percpu"
SHARED = "shared"
LOAD_TIME = "load_time"
PERCPU_SECTION = ".bss.percpu"
SHARED_SECTION = ".bss.maps"

_ZEROS, _CONSTANTS = "zeros", "constants"

_LAYOUT = ("e" if TRIPLE == "bpfel" else "E") + "-m:e-p:64:64-i64:64-i128:128-n32:64-S128"

_DECLARATIONS = """\
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @llvm.preserve.static.offset(ptr)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i16 @llvm.bswap.i16(i16)
declare i32 @llvm.bswap.i32(i32)
declare i64 @llvm.bswap.i64(i64)
"""

_NO_LIBRARY = '"no-builtins" "no-jump-tables"="true"'
"""BPF has no C library, so LLVM must not merge stores into a call of memset(), and no indirect jumps."""


def program_section(symbol: str) -> str:
    """The ELF section of a program."""
    return f"pytrace/{symbol}"


def escaped(data: bytes) -> str:
    """Bytes as an IR string constant."""
    return 'c"' + "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in data) + '"'


class Module:
    """Collects the contents of the script's ELF file and renders them as IR text.

    *atomics*: the kernel has atomic operations that return the old value (``BPF_FETCH``).
    """

    def __init__(self, source: Source | None, licence: str, *, atomics: bool = True) -> None:
        self._atomics = atomics
        self.debug = DebugInfo(source)
        self.source = source
        self.functions: list[FunctionText] = []
        self._globals: list[str] = []
        self._constants: dict[bytes, int] = {}
        self._blob = bytearray(8)
        self._late: dict[str, Late] = {}
        self._kernel_functions: dict[str, str] = {}
        self._zeros = 0
        self.load_time = bytearray()
        """The section of load-time values of ahead-of-time files (``codegen.aot.load_time_values``)."""
        raw = licence.encode() + b"\0"
        info = self.debug.data("LICENSE", len(raw))
        self._globals.append(
            f'@LICENSE = dso_local global [{len(raw)} x i8] {escaped(raw)}, section "license", align 1, !dbg {info}'
        )
        self.map(RING, {"type": MapType.RINGBUF, "max_entries": 256 * 1024})

    # ------------------------------------------------------------------ functions

    def function(
        self, name: str, parameters: tuple[str, ...], span: Span | None,
        *, section: str = "", inlined: bool = False, apart: bool = False,
    ) -> Builder:  # fmt: skip
        """The builder of a new function; *section* makes it a program, *inlined* inlines it.

        *parameters* are names, those of pointers with a leading ``*``. *apart*: the function is global, so the verifier
        checks it once, with any numbers as arguments, and not at each call in each state.
        """
        scope = self.debug.function(name, parameters, span, local=not section and not apart)
        listed = ", ".join(f"{'ptr' if item.startswith('*') else 'i64'} %{item.lstrip('*')}" for item in parameters)
        inline = "alwaysinline" if inlined else "noinline"
        head = (
            f'dso_local i64 @{name}({listed}) nounwind {_NO_LIBRARY} section "{section}" !dbg {scope}'
            if section
            else f"dso_local i64 @{name}({listed}) noinline nounwind {_NO_LIBRARY} !dbg {scope}"
            if apart
            else f"internal i64 @{name}({listed}) {inline} nounwind {_NO_LIBRARY} !dbg {scope}"
        )
        function = FunctionText(name, head)
        self.functions.append(function)
        builder = Builder(function, scope, atomics=self._atomics)
        if span is not None:
            builder.location = self.debug.location(scope, span, span.source)
        return builder

    # ------------------------------------------------------------------ data

    def map(self, symbol: str, attributes: dict[str, int], task_work: int = 0) -> None:
        """A BTF-defined map; *task_work* is the size of its values if these start with a ``struct bpf_task_work``."""
        info = self.debug.map_definition(symbol, attributes, task_work)
        fields = ", ".join(["ptr"] * (len(attributes) + (2 if task_work else 0)))
        self._globals.append(
            f'@{symbol} = dso_local global {{ {fields} }} zeroinitializer, section ".maps", align 8, !dbg {info}'
        )

    def constant(self, data: bytes) -> Ptr:
        """Read-only bytes (8-byte aligned), deduplicated.

        All are in a single global, because LLVM would put separate ones into a section of mergeable strings, which
        libbpf does not support.
        """
        if data not in self._constants:
            self._constants[data] = len(self._blob)
            self._blob += data + bytes(-len(data) % 8)
        return global_pointer(_CONSTANTS, self._constants[data])

    def kernel_function(self, name: str, parameters: tuple[str, ...], result: str) -> None:
        """Declare a kfunc; types are those of ``DebugInfo.kernel_function``."""
        if name in self._kernel_functions:
            return
        info = self.debug.kernel_function(name, parameters, result)
        listed = ", ".join("i32" if item == "int" else "ptr" for item in parameters)
        result_type = {"int": "i32", "void": "void"}.get(result, "ptr")
        self._kernel_functions[name] = f'declare !dbg {info} {result_type} @{name}({listed}) section ".ksyms"\n'

    def imported_function(self, name: str, parameters: tuple[Type, ...], result: Type) -> None:
        """Declare a function of an imported object file.

        It is hidden, so that libbpf marks it as static after linking and the verifier checks its calls with the state
        of the arguments.
        """
        if name not in self._kernel_functions:
            info = self.debug.imported_function(name, parameters, result)
            listed = ", ".join("i64" for _ in parameters)
            self._kernel_functions[name] = f"declare !dbg {info} hidden i64 @{name}({listed})\n"

    def zeros(self, size: int) -> Ptr:
        """Read-only zero bytes, at least *size* of them."""
        self._zeros = max(self._zeros, size)
        return global_pointer(_ZEROS)

    def late(self, name: str) -> Late:
        """A late operand: an integer whose value is set by :meth:`settle`."""
        return self._late.setdefault(name, Late(name))

    def settle(self, name: str, value: int) -> None:
        """Set the value of a late operand."""
        self.late(name).value = value

    # ------------------------------------------------------------------ output

    def text(self, percpu: int, shared: int) -> str:
        """IR of the module; *percpu* and *shared* are the sizes of the two data sections."""
        data = list(self._globals)
        for name, section, size in ((PERCPU, PERCPU_SECTION, percpu), (SHARED, SHARED_SECTION, shared)):
            if size:
                info = self.debug.data(name, size)
                data.append(
                    f'@{name} = dso_local global [{size} x i8] zeroinitializer, section "{section}", '
                    f"align 64, !dbg {info}"
                )
        if self._zeros:
            data.append(
                f'@{_ZEROS} = internal constant [{self._zeros} x i8] zeroinitializer, section ".rodata", align 8'
            )
        if self._constants:
            data.append(
                f'@{_CONSTANTS} = internal constant [{len(self._blob)} x i8] {escaped(bytes(self._blob))}, '
                'section ".rodata", align 8'
            )
        if self.load_time:
            # Set by the loader: the optimiser must not assume the initial values.
            info = self.debug.data(LOAD_TIME, len(self.load_time))
            data.append(
                f"@{LOAD_TIME} = dso_local externally_initialized constant [{len(self.load_time)} x i8] "
                f'{escaped(bytes(self.load_time))}, section "{LOAD_TIME_SECTION}", align 8, !dbg {info}'
            )
        maps = ", ".join(f"ptr {item.split(' ', 1)[0]}" for item in data if 'section ".maps"' in item)
        count = maps.count("ptr")
        parts = [
            f'target datalayout = "{_LAYOUT}"\ntarget triple = "{TRIPLE}"\n',
            "\n".join(data) + "\n",
            f'@llvm.compiler.used = appending global [{count} x ptr] [{maps}], section "llvm.metadata"\n',
            *(function.text() for function in self.functions),
            _DECLARATIONS,
            *self._kernel_functions.values(),
            self.debug.text(),
        ]
        return "\n".join(parts)
