"""The LLVM module of one script: functions, maps, data sections, late operands, and debug metadata.

The debug metadata is what BTF is made of: of the maps, of the functions and of the lines of the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pytrace.codegen.ir.builder import Builder, FunctionText
from pytrace.codegen.ir.target import TRIPLE
from pytrace.codegen.ir.values import Late, Location, Ptr, Scope, global_pointer, pointer_parameter
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import LOAD_TIME_SECTION, RING, MapType
from pytrace.core.source import Source, Span
from pytrace.core.types import Bool, Enum, Int, Pointer, Struct, Type, Void

_POINTER = "!DIDerivedType(tag: DW_TAG_pointer_type, baseType: {base}, size: 64)"
_EXACT = "!DIExpression()"


_ESCAPED = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in range(256)]
"""Each byte as it is written in a string of LLVM's text."""


def quoted(text: str) -> str:
    """A metadata string."""
    return f'"{"".join(map(_ESCAPED.__getitem__, text.encode("utf-8", "surrogateescape")))}"'


class DebugInfo:
    """The metadata of one module."""

    def __init__(self, source: Source | None) -> None:
        # Nodes 0 and 1 are the branch weights that Builder.branch refers to.
        self._nodes: list[str] = [
            '!{!"branch_weights", i32 2000, i32 1}',
            '!{!"branch_weights", i32 1, i32 2000}',
        ]
        self._known: dict[str, str] = {}
        self._files: dict[Source | None, str] = {}
        self._places: dict[tuple[str, Source, int], Scope] = {}
        self._lines: dict[tuple[str, int, int], Location] = {}
        self._globals: list[str] = []
        self._global_list = self.reserve()
        self.unit = self.reserve()
        self._main = source
        self.file(source)
        self.int = self.add('!DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)')
        self.long = self.add('!DIBasicType(name: "long", size: 64, encoding: DW_ATE_signed)')
        self.void_pointer = self.pointer("null")

    # ------------------------------------------------------------------ nodes

    def reserve(self) -> str:
        """Reserve the number of a node that is written later by :meth:`fill`."""
        self._nodes.append("")
        return f"!{len(self._nodes) - 1}"

    def fill(self, name: str, text: str) -> None:
        """Write a reserved node."""
        self._nodes[int(name[1:])] = text

    def add(self, text: str) -> str:
        """A node; equal nodes are deduplicated."""
        if text not in self._known:
            name = self.reserve()
            self.fill(name, text)
            self._known[text] = name
        return self._known[text]

    def file(self, source: Source | None) -> str:
        """The file node of a source, its text included, so that the verifier's log shows script lines."""
        if source not in self._files:
            name = source.name if source is not None else "pytrace"
            text = source.text if source is not None else ""
            self._files[source] = self.add(f'!DIFile(filename: {quoted(name)}, directory: "", source: {quoted(text)})')
        return self._files[source]

    # ------------------------------------------------------------------ types

    def pointer(self, base: str) -> str:
        """Pointer type."""
        return self.add(_POINTER.format(base=base))

    def map_definition(self, symbol: str, attributes: dict[str, int], task_work: int = 0) -> str:
        """The variable of a BTF-defined map: each attribute is a pointer to an array whose length is its value.

        With *task_work* the map has a 64-bit key, and values of that many bytes that start with a
        ``struct bpf_task_work``, which the kernel finds by its name.
        """
        types = {}
        for name, count in attributes.items():
            bounds = self.add(f"!{{{self.add(f'!DISubrange(count: {count})')}}}")
            types[name] = self.add(
                f"!DICompositeType(tag: DW_TAG_array_type, baseType: {self.int}, size: {32 * count}, "
                f"elements: {bounds})"
            )
        if task_work:
            types |= {"key": self.long, "value": self._task_work_value(task_work)}
        members = [
            self.add(
                f'!DIDerivedType(tag: DW_TAG_member, name: "{name}", file: {self.file(self._main)}, '
                f"baseType: {self.pointer(type_)}, size: 64, offset: {64 * index})"
            )
            for index, (name, type_) in enumerate(types.items())
        ]
        type_ = self.add(
            f"distinct !DICompositeType(tag: DW_TAG_structure_type, file: {self.file(self._main)}, "
            f"size: {64 * len(members)}, elements: {self.add('!{' + ', '.join(members) + '}')})"
        )
        return self._variable(symbol, type_)

    def _task_work_value(self, size: int) -> str:
        """A struct of *size* bytes that starts with a ``struct bpf_task_work``, which has 8."""
        file = self.file(self._main)
        bytes_ = self._bytes(size - 8)
        members = [
            self.add(f'!DIDerivedType(tag: DW_TAG_member, name: "{name}", file: {file}, baseType: {type_}, '
                     f"size: {8 * length}, offset: {8 * offset})")
            for name, type_, length, offset in (
                ("work", self._struct("bpf_task_work"), 8, 0), ("data", bytes_, size - 8, 8),
            )
        ]  # fmt: skip
        elements = self.add("!{" + ", ".join(members) + "}")
        return self.add(
            f'!DICompositeType(tag: DW_TAG_structure_type, name: "pending_{size}", file: {file}, size: {8 * size}, '
            f"elements: {elements})"
        )

    def _bytes(self, size: int) -> str:
        byte = self.add('!DIBasicType(name: "char", size: 8, encoding: DW_ATE_signed_char)')
        bounds = self.add(f"!{{{self.add(f'!DISubrange(count: {size})')}}}")
        return self.add(
            f"!DICompositeType(tag: DW_TAG_array_type, baseType: {byte}, size: {8 * size}, elements: {bounds})"
        )

    def data(self, symbol: str, size: int) -> str:
        """A variable of *size* bytes: libbpf makes a data section mappable if it has a typed global."""
        return self._variable(symbol, self._bytes(size))

    def _variable(self, symbol: str, type_: str) -> str:
        variable = self.reserve()
        self.fill(
            variable,
            f'distinct !DIGlobalVariable(name: "{symbol}", scope: {self.unit}, file: {self.file(self._main)}, '
            f"line: 1, type: {type_}, isLocal: false, isDefinition: true)",
        )
        expression = self.reserve()
        self.fill(expression, f"!DIGlobalVariableExpression(var: {variable}, expr: {_EXACT})")
        self._globals.append(expression)
        return expression

    # ------------------------------------------------------------------ functions

    def function(
        self, name: str, parameters: tuple[str, ...], span: Span | None, *, local: bool, sizes: Mapping[str, int]
    ) -> Scope:
        """A function that returns an integer; *parameters* are names, those of pointers with a leading ``*``.

        A pointer is one to as many bytes as *sizes* has for it, else to anything.
        """
        file = self.file(span.source if span is not None else self._main)
        line = span.first.line if span is not None else 1
        pointers = {f"*{parameter}": self.pointer(self._bytes(size)) for parameter, size in sizes.items()}
        types = [
            pointers.get(item, self.void_pointer) if item.startswith("*") else self.long for item in parameters
        ]
        result = self.long if local else self.int
        signature = self.add(f"!DISubroutineType(types: {self.add('!{' + ', '.join([result, *types]) + '}')})")
        node, retained = self.reserve(), self.reserve()
        flags = "DISPFlagDefinition | DISPFlagOptimized" + (" | DISPFlagLocalToUnit" if local else "")
        self.fill(
            node,
            f'distinct !DISubprogram(name: "{name}", scope: {file}, file: {file}, line: {line}, type: {signature}, '
            f"scopeLine: {line}, flags: DIFlagPrototyped, spFlags: {flags}, unit: {self.unit}, "
            f"retainedNodes: {retained})",
        )
        variables = []
        for number, (item, type_) in enumerate(zip(parameters, types, strict=True), start=1):
            variable = self.reserve()
            self.fill(
                variable,
                f'!DILocalVariable(name: "{item.lstrip("*")}", arg: {number}, scope: {node}, file: {file}, '
                f"line: {line}, type: {type_})",
            )
            variables.append(variable)
        self.fill(retained, "!{" + ", ".join(variables) + "}")
        return Scope(node)

    def kernel_function(self, name: str, parameters: tuple[str, ...], result: str) -> str:
        """Declaration of a kfunc, which libbpf resolves by name in the kernel's BTF."""
        return self._declaration(name, [self._kernel_type(item) for item in (result, *parameters)])

    def _declaration(self, name: str, types: list[str]) -> str:
        """A function that is defined elsewhere; *types* are the types of its result and its parameters."""
        listed = self.add(f"!{{{', '.join(types)}}}")
        signature = self.add(f"!DISubroutineType(types: {listed})")
        file = self.file(self._main)
        return self.add(
            f'!DISubprogram(name: "{name}", scope: {file}, file: {file}, line: 1, type: {signature}, '
            "flags: DIFlagPrototyped, spFlags: DISPFlagOptimized)"
        )

    def _kernel_type(self, name: str) -> str:
        """``int``, ``void``, ``void *``, a callback of maps, or a pointer to the kernel's struct of that name."""
        plain = {"int": self.int, "void": "null", "void *": self.void_pointer}.get(name)
        if plain is not None:
            return plain
        if name == "map callback":
            types = (self.int, self.pointer(self._struct("bpf_map")), self.void_pointer, self.void_pointer)
            return self.pointer(self.add(f"!DISubroutineType(types: {self.add('!{' + ', '.join(types) + '}')})"))
        return self.pointer(self._struct(name))

    def _struct(self, name: str) -> str:
        """One of the kernel's structs; libbpf compares names, and the kernel the size of ``bpf_task_work``."""
        return self.add(
            f'!DICompositeType(tag: DW_TAG_structure_type, name: "{name}", file: {self.file(self._main)}, '
            f"size: 64, elements: {self.add('!{}')})"
        )

    def imported_function(self, name: str, parameters: tuple[Type, ...], result: Type) -> str:
        """Declaration of a function of another object file; the linker compares its types with the definition's."""
        return self._declaration(name, [self._c_type(item) for item in (result, *parameters)])

    def _c_type(self, type_: Type) -> str:
        """A type as the linker compares it: kinds, sizes and names, without signedness and members."""
        match type_:
            case Void():
                return "null"
            case Bool():
                return self.add('!DIBasicType(name: "_Bool", size: 8, encoding: DW_ATE_boolean)')
            case Enum():
                listed = ", ".join(
                    self.add(f'!DIEnumerator(name: "{name}", value: {value})') for name, value in type_.members
                )
                return self.add(
                    f'!DICompositeType(tag: DW_TAG_enumeration_type, name: "{type_.name}", '
                    f"file: {self.file(self._main)}, size: {8 * type_.size}, elements: {self.add(f'!{{{listed}}}')})"
                )
            case Struct(kind="struct"):
                return self._forward("structure", type_.name)
            case Struct():
                return self._forward("union", type_.name)
            case Pointer():
                return self.pointer(self._c_type(type_.target))
            case Int():
                sign = "signed" if type_.signed else "unsigned"
                return self.add(f'!DIBasicType(name: "{type_}", size: {8 * type_.size}, encoding: DW_ATE_{sign})')
        raise TraceError(f"imported C functions with {type_} cannot be called")

    def _forward(self, tag: str, name: str) -> str:
        return self.add(
            f'!DICompositeType(tag: DW_TAG_{tag}_type, name: "{name}", file: {self.file(self._main)}, '
            "flags: DIFlagFwdDecl)"
        )

    def location(self, scope: Scope, span: Span, source: Source) -> Location:
        """The ``!dbg`` suffix of an instruction for a script location; *source* is the file of the function *scope*."""
        first = span.first
        if span.source is not source:
            scope = self._place(scope, span.source)
        key = (scope, first.line, first.column)
        if key not in self._lines:
            node = self.reserve()
            self.fill(node, f"!DILocation(line: {first.line}, column: {min(first.column, 1023)}, scope: {scope})")
            self._lines[key] = Location(f", !dbg {node}")
        return self._lines[key]

    def _place(self, scope: Scope, source: Source) -> Scope:
        """A lexical scope inside a function for code of another file (a library macro)."""
        key = (scope, source, 0)
        if key not in self._places:
            node = self.reserve()
            self.fill(node, f"!DILexicalBlockFile(scope: {scope}, file: {self.file(source)}, discriminator: 0)")
            self._places[key] = Scope(node)
        return self._places[key]

    # ------------------------------------------------------------------ output

    def text(self) -> str:
        """All nodes and the named lists that refer to them."""
        self.fill(self._global_list, "!{" + ", ".join(self._globals) + "}")
        self.fill(
            self.unit,
            f'distinct !DICompileUnit(language: DW_LANG_C99, file: {self.file(self._main)}, producer: "pytrace", '
            f"isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug, globals: {self._global_list})",
        )
        version = self.add('!{i32 2, !"Debug Info Version", i32 3}')
        dwarf = self.add('!{i32 7, !"Dwarf Version", i32 5}')
        lines = [f"!llvm.dbg.cu = !{{{self.unit}}}", f"!llvm.module.flags = !{{{version}, {dwarf}}}"]
        lines.extend(f"!{number} = {node}" for number, node in enumerate(self._nodes))
        return "\n".join(lines) + "\n"


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


def escaped(data: bytes) -> str:
    """Bytes as an IR string constant."""
    return f'c"{"".join(map(_ESCAPED.__getitem__, data))}"'


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
        """The section of load-time values of ahead-of-time files (``codegen.emit.load_time``)."""
        raw = licence.encode() + b"\0"
        info = self.debug.data("LICENSE", len(raw))
        self._globals.append(
            f'@LICENSE = dso_local global [{len(raw)} x i8] {escaped(raw)}, section "license", align 1, !dbg {info}'
        )
        self.map(RING, {"type": MapType.RINGBUF, "max_entries": 256 * 1024})

    # ------------------------------------------------------------------ functions

    def function(
        self, name: str, parameters: tuple[str, ...], span: Span | None,
        *, entry: bool = False, inlined: bool = False, apart: bool = False,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> Builder:  # fmt: skip
        """The builder of a new function; *entry*: it is a program, *inlined*: LLVM inlines it.

        *parameters* are names, those of pointers with a leading ``*``. *apart*: the function is global, so the verifier
        checks it once, with any numbers as arguments, and not at each call in each state. *sizes* are the bytes of
        memory that its pointers need to have, by parameter.
        """
        scope = self.debug.function(name, parameters, span, local=not entry and not apart, sizes=sizes)
        listed = ", ".join(f"{'ptr' if item.startswith('*') else 'i64'} %{item.lstrip('*')}" for item in parameters)
        inline = "alwaysinline" if inlined else "noinline"
        head = (
            f'dso_local i64 @{name}({listed}) nounwind {_NO_LIBRARY} section "pytrace/{name}" !dbg {scope}'
            if entry
            else f"dso_local i64 @{name}({listed}) noinline nounwind {_NO_LIBRARY} !dbg {scope}"
            if apart
            else f"internal i64 @{name}({listed}) {inline} nounwind {_NO_LIBRARY} !dbg {scope}"
        )
        function = FunctionText(name, head)
        self.functions.append(function)
        builder = Builder(function, scope, atomics=self._atomics)
        if span is not None:
            builder.location = self.debug.location(scope, span, span.source)
        if sizes:
            self._refuse_null(builder, sizes)
        return builder

    @staticmethod
    def _refuse_null(b: Builder, parameters: Iterable[str]) -> None:
        """Return 0 for a null pointer: to the verifier each pointer to a global function may be one."""
        null, begin = b.block(), b.block()
        for name in parameters:
            b.jump_if(b.is_null(pointer_parameter(name)), null, likely=False)
        b.jump(begin)
        b.start(null)
        b.ret(0)
        b.start(begin)

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
                f"@{_CONSTANTS} = internal constant [{len(self._blob)} x i8] {escaped(bytes(self._blob))}, "
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
