"""Typing rules of calls: of builtins, functions of the script and of imported C; checks that builtins share.

The check of a builtin is a method of its family's class. It gets the node (a call, or an identifier for the bare name)
and the arguments, whose number has been checked; returns the type of the result (VOID for none, UNKNOWN after an
error), and fills ``facts``, ``events`` and ``constants`` as :mod:`pytrace.frontend.syntax.typed_program` says.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from pytrace.base.dispatch import handles
from pytrace.core.builtins import Builtin, builtin, builtin_names
from pytrace.core.diagnostics import Note, TraceError, counted, did_you_mean
from pytrace.core.event_layout import AnyStaticPart
from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.probe_kinds import TRACEPOINT
from pytrace.core.text import UNSUPPORTED_CONVERSIONS, Conversion, Format, parse_format
from pytrace.core.types import VOID, Bool, Buffer, Enum, Float, Int, Pointer, Struct, Type, Void
from pytrace.frontend.check.checker import Arguments, Checker, Node
from pytrace.frontend.check.conversions import (
    CONVERT,
    UNKNOWN,
    Unknown,
    fits,
    is_condition,
    is_integer,
    is_text,
    settle,
)
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import FunctionInfo, ImportedFunction

_WIDEST = 65_535
"""The greatest width and precision."""


# ---------------------------------------------------------------------------------------------- formats of printf


def _is_number(type_: Type) -> bool:
    return is_integer(type_) or isinstance(type_, Bool | Pointer)


def _is_fraction(type_: Type) -> bool:
    return isinstance(type_, Float)


def _is_buffer(type_: Type) -> bool:
    return isinstance(type_, Buffer)


def _has_text(type_: Type) -> bool:
    return not isinstance(type_, Void) and not type_.aggregate


_NUMBERS = ("d", "i", "u", "o", "x", "X", "c", "p")
CONVERSIONS: dict[str, tuple[Callable[[Type], bool], str]] = {
    **dict.fromkeys(_NUMBERS, (_is_number, "an integer")),
    **dict.fromkeys(("f", "F", "e", "E", "g", "G"), (_is_fraction, "a floating-point number")),
    "gr": (is_integer, "an integer of GFP flags"),
    "s": (_has_text, "a value"),
    "r": (_is_buffer, "a buffer"),
    "rx": (_is_buffer, "a buffer"),
    "rh": (_is_buffer, "a buffer"),
}
"""For each conversion, a test of accepted types and their name for messages."""


def _spaced_hints(conversions: list[Conversion]) -> list[str]:
    """``100% done``: the space is a flag, and ``d`` the conversion."""
    spaced = next((item.text for item in conversions if " " in item.text), None)
    return [] if spaced is None else [f"{spaced!r} is a conversion; write %% for a % sign"]


def text_of(value: bytes) -> str:
    """Bytes of a script as text of the manifest (see :mod:`pytrace.core.event_layout`)."""
    return value.decode("utf-8", "surrogateescape")


_IGNORABLE_RESULTS = frozenset({"skboutput", "signal", "signal_thread", "write_user", "override", "find"})
"""Functions with a result that a statement may ignore."""


# ---------------------------------------------------------------------------------------------- functions of imported C

_MOST_PARAMETERS = 5
"""A BPF call passes its arguments in registers 1 to 5."""

_UNITS = {"ns": "ns", "us": "us", "ms": "ms", "usec": "us", "usecs": "us", "msec": "ms", "msecs": "ms", "sec": "s"}
"""Functions that somebody may look for to convert nanoseconds: literals of durations do that."""


def _is_callable(function: ImportedFunction) -> bool:
    kinds = [kind for _, kind in function.parameters]
    return (
        len(kinds) <= _MOST_PARAMETERS
        and all(isinstance(kind, Int | Bool | Enum | Pointer) for kind in kinds)
        and isinstance(function.result, Int | Bool | Enum | Pointer | Void)
    )


def _signature(function: ImportedFunction) -> str:
    listed = ", ".join(f"{kind} {name}" for name, kind in function.parameters)
    return f"{function.result} {function.name}({listed})"


def _fits_parameter(argument_type: Type, parameter_type: Type) -> bool:
    """Whether an argument fits a parameter: C converts integers implicitly, and a string decays to a pointer."""
    if isinstance(argument_type, Unknown) or argument_type is UNKNOWN:
        return True
    if not isinstance(parameter_type, Pointer):
        return is_condition(argument_type) and not isinstance(argument_type, Pointer)
    target = parameter_type.target
    if is_text(argument_type):
        return isinstance(target, Void) or (isinstance(target, Int) and target.width == 1)
    if isinstance(argument_type, Struct):
        return _same_target(argument_type, target)
    if not isinstance(argument_type, Pointer):
        return False
    return isinstance(argument_type.target, Void) or _same_target(argument_type.target, target)


def _same_target(argument: Type, parameter: Type) -> bool:
    if isinstance(parameter, Void):
        return True
    if isinstance(argument, Struct) and isinstance(parameter, Struct):
        return (argument.kind, argument.name) == (parameter.kind, parameter.name)
    if isinstance(argument, Int) and isinstance(parameter, Int):
        return argument.width == parameter.width
    return type(argument) is type(parameter) and argument.size == parameter.size


class Events(msgspec.Struct, eq=False):
    """Records the events that calls send, and the texts of the string table."""

    checker: Checker

    def send(
        self,
        node: nodes.Expr,
        kind: str,
        static: AnyStaticPart,
        arguments: tuple[nodes.Expr, ...] = (),
        types: tuple[Type, ...] | None = None,
    ) -> None:
        """Record that *node* sends an event with *arguments*; *types* if they differ from those of the expressions."""
        if not self.checker.final:
            return
        program = self.checker.program
        sent = types if types is not None else tuple(self.checker.settled(argument) for argument in arguments)
        program.events[node] = program.send(node, kind, sent, static)
        program.event_arguments[node] = arguments

    def string_index(self, value: bytes) -> int:
        """Index of a text in the string table."""
        strings, text = self.checker.program.strings, text_of(value)
        if text not in strings:
            strings.append(text)
        return strings.index(text)


class ArgumentChecks(msgspec.Struct, eq=False):
    """Checks of arguments that several builtins share."""

    checker: Checker

    def unstable(self, name: str, node: nodes.Expr) -> bool:
        """Whether the configuration allows an unstable feature; reports an error or a warning as configured."""
        setting = getattr(self.checker.config, f"unstable_{name}")
        hint = f"set unstable_{name} = enable in the config block"
        if setting == "error":
            self.checker.error(f"{name} is unstable and disabled", node.span, hints=[hint])
            return False
        if setting == "warn":
            self.checker.warn(f"{name} is unstable: its behaviour may change", node.span, hints=[hint])
        return True

    def expression(self, arg: nodes.Expr | nodes.TypeExpr) -> nodes.Expr:
        """An argument that must be an expression."""
        if isinstance(arg, nodes.Expr):
            return arg
        self.checker.error("a type cannot be an argument here", arg.span)
        return nodes.IntLiteral(arg.span, 0)

    def expressions(self, args: Arguments) -> tuple[nodes.Expr, ...]:
        """Arguments that must all be expressions."""
        return tuple(self.expression(arg) for arg in args)

    def literal_integer(
        self, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str, low: int, high: int
    ) -> int | None:
        """The value of an argument that must be an integer constant in a range; reported at the call."""
        value = self.expression(arg)
        type_ = self.checker.value(value)
        constant = self.checker.constant(value)
        if isinstance(constant, bool) or not isinstance(constant, int):
            if not isinstance(type_, Unknown):
                self.checker.error(
                    f"{what} must be an integer literal", node.span, hints=self.checker.constant_hints(value)
                )
            return None
        if not low <= constant <= high:
            self.checker.error(f"{what} must be {low} to {high}, not {constant}", node.span)
            return None
        return constant

    def integer(self, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str) -> Type:
        """Type of an argument that must be an integer; reported at the call."""
        value = self.expression(arg)
        type_ = self.checker.value(value)
        if not isinstance(type_, Unknown) and not is_integer(type_):
            hints = [CONVERT] if isinstance(type_, Float) else []
            return self.checker.error(f"{what} must be an integer, not {settle(type_)}", node.span, hints=hints)
        return type_

    def text(self, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str) -> Type:
        """Type of an argument that must be a string."""
        value = self.expression(arg)
        type_ = self.checker.value(value)
        if not isinstance(type_, Unknown) and not is_text(type_):
            return self.checker.error(
                f"{what} must be a string, not {settle(type_)}", node.span, hints=["str() reads one"]
            )
        return type_

    def pointer(self, node: Node, arg: nodes.Expr | nodes.TypeExpr, what: str) -> Type:
        """Type of an argument that must be an address."""
        value = self.expression(arg)
        type_ = self.checker.value(value)
        if not isinstance(type_, Unknown | Pointer) and not is_integer(type_):
            return self.checker.error(f"{what} must be a pointer or an integer, not {settle(type_)}", node.span)
        return type_

    def literal_text(self, arg: nodes.Expr | nodes.TypeExpr, what: str) -> str | None:
        """The text of an argument that must be a string literal; None after an error."""
        text = self.checker.constant_text(arg, what)
        return None if text is None else text.decode(errors="replace")

    def struct(self, node: Node, arg: nodes.Expr | nodes.TypeExpr, *names: str) -> Type:
        """Type of an argument that must be a pointer to a struct of one of these *names*; reported at the call."""
        type_ = self.checker.value(self.expression(arg))
        fits = isinstance(type_, Pointer) and isinstance(type_.target, Struct) and type_.target.name in names
        if not fits and not isinstance(type_, Unknown):
            return self.checker.error(f"{node.name}() takes a struct {names[0]} *, not {settle(type_)}", node.span)
        return type_

    def require_args(self, node: nodes.Identifier) -> bool:
        """Whether the probe has ``args``; reports an error otherwise."""
        unit = self.checker.unit
        if unit is None:
            self.checker.error("a function has no args", node.span, hints=["pass the value as a parameter"])
            return False
        if unit.context.args_type is None and not unit.context.arguments:
            hints = [*unit.context.missing]
            if unit.kind.positional and not unit.kind.typed:
                hints.append("use arg0, arg1 …")
            self.checker.error(f"{unit.kind.name} probes have no args here", node.span, hints=hints)
            return False
        return True

    def report_lost(self, node: nodes.Node) -> bool:
        """Report an argument, a member of one, or ``retval`` that is in a register which programs cannot read."""
        if self.checker.unit is None or not self.checker.unit.context.lost:
            return False
        names: list[str] = []
        inner = node
        while isinstance(inner, nodes.FieldAccess | nodes.Index):
            names += [inner.name] if isinstance(inner, nodes.FieldAccess) else []
            inner = inner.base
        if not isinstance(inner, nodes.Identifier):
            return False
        name = ".".join([inner.name, *reversed(names)])
        if name not in self.checker.unit.context.lost:
            return False
        self.checker.error(f"{name} is in a floating-point register, which BPF programs cannot read", node.span)
        return True

    def formatted(self, node: Node, arguments: Arguments) -> tuple[Format | None, tuple[nodes.Expr, ...]]:
        """The format of a call, and the values for it, which are checked against it; no format after an error."""
        text = self.checker.constant_text(arguments[0], f"the format of {node.name}()")
        values = self.expressions(arguments[1:])
        return None if text is None else self._check_format(node, parse_format(text), values), values

    def _check_format(self, node: Node, format_: Format, values: tuple[nodes.Expr, ...]) -> Format | None:
        name, types = node.name, [self.checker.value(value) for value in values]
        wanted = format_.conversions
        refused = next((item for item in wanted if item.name in UNSUPPORTED_CONVERSIONS), None)
        if refused is not None:
            self.checker.error(f"{name}(): conversion {refused.text!r} is not supported", node.span)
            return None
        wide = next((item for item in wanted if max(item.columns, item.digits or 0) > _WIDEST), None)
        if wide is not None:
            self.checker.error(f"{name}(): the width or precision of {wide.text!r} is more than {_WIDEST}", node.span)
            return None
        for part in format_.stray:
            self.checker.warn(
                f"{name}(): {part!r} is not a conversion: the % is printed as it is",
                node.span,
                hints=["write %% for a % sign"],
            )
        if len(wanted) != len(values):
            less = "not enough" if len(wanted) > len(values) else "too many"
            self.checker.error(
                f"{less} values for {name}(): the format takes {len(wanted)}, {len(values)} given",
                node.span,
                hints=_spaced_hints(wanted),
            )
            return None
        fine = True
        for conversion, type_ in zip(wanted, types, strict=True):
            test, what = CONVERSIONS[conversion.name]
            if not isinstance(type_, Unknown) and not test(type_):
                hints = ["%f and %g take one"] if isinstance(type_, Float) else []
                self.checker.error(
                    f"{name}(): {conversion.text} takes {what}, not {settle(type_)}", node.span, hints=hints
                )
                fine = False
        return format_ if fine else None

    @handles(nodes.PositionalParam, nodes.ParamCount)
    def _parameter(self, node: nodes.PositionalParam | nodes.ParamCount) -> Type:
        return self.unreplaced_parameter(node)

    def unreplaced_parameter(self, node: nodes.Expr) -> Type:
        """``$1``, ``$#`` or ``getopt()`` from a C macro, which the parameters pass does not always see."""
        return self.checker.error(
            "a C macro that stands for a parameter of the script is not possible here",
            node.span,
            hints=["define it in the script, outside #if and without #undef, or use the parameter directly"],
        )


class Calls(msgspec.Struct, eq=False):
    """Typing rules of calls: of builtins, functions of the script and of imported C."""

    checker: Checker
    check_of: Callable[[Builtin], Callable[[Node, Arguments], Type]]
    """The check of a builtin."""

    @handles(nodes.Call)
    def call(self, node: nodes.Call) -> Type:
        """``name(args)``."""
        function = self.checker.functions.get(node.name)
        if function is not None:
            return self._call_function(node, function)
        row = builtin(node.name)
        if (row is None or row.yields) and node.name in self.checker.imported:
            return self._call_imported(node)
        if row is None and (reason := self.checker.definitions.no_value(node.name)) is not None:
            notes = [("defined here", reason.span)]
            return self.checker.error(reason.message, node.span, hints=reason.hints, notes=notes)
        if row is None:
            hints = did_you_mean(node.name, [*builtin_names(), *self.checker.functions, *self.checker.imported])
            if node.name in _UNITS and len(node.args) == 1:
                hints = (f"write a division by a duration: duration / 1{_UNITS[node.name]}",)
            return self.checker.error(f"unknown function {node.name!r}", node.span, hints=hints)
        if not row.call:
            return self.checker.error(f"{node.name} is a value, not a function", node.span)
        return self.check_builtin(node, row, node.args)

    def check_builtin(self, node: nodes.Call | nodes.Identifier, row: Builtin, args: Arguments) -> Type:
        """A use of a builtin, as a call or as a bare name (no arguments)."""
        if not self._check_count(node, row, len(args)) or not self._check_use(node, row):
            return UNKNOWN
        self.checker.program.calls[node] = row
        return self.check_of(row)(node, args)

    def _check_count(self, node: nodes.Expr, row: Builtin, count: int) -> bool:
        if row.least <= count and (row.most is None or count <= row.most):
            return True
        if row.most is None:
            wanted = f"at least {row.least}"
        elif row.least == row.most:
            wanted = str(row.least) if row.least else "no"
        else:
            wanted = f"{row.least} to {row.most}"
        plural = "" if wanted == "1" else "s"
        self.checker.error(
            f"{row.name}() takes {wanted} argument{plural}, not {count}", node.span, hints=[row.signature]
        )
        return False

    def _check_use(self, node: nodes.Expr, row: Builtin) -> bool:
        if row.unsafe and not self.checker.options.unsafe:
            self.checker.error(
                f"{row.name}() can change the system, so it needs --unsafe", node.span, hints=["run with --unsafe"]
            )
            return False
        if row.no_loop and self.checker.map_loops:
            name = node.name if isinstance(node, nodes.Identifier) else row.name
            hints = ["put it into a variable before the loop"]
            self.checker.error(f"{name} cannot be read inside a for loop", node.span, hints=hints)
            return False
        if row.probes is None:
            return True
        kind = self.checker.unit.kind.name if self.checker.unit is not None else None
        if kind in row.probes:
            return True
        where = f"in {kind} probes" if kind is not None else "in functions"
        name = node.name if isinstance(node, nodes.Identifier) else row.name
        allowed = ", ".join(sorted(row.probes))
        hints = [*self._argument_hints(name), f"available in {allowed}"]
        self.checker.error(f"{name} is not available {where}", node.span, hints=hints)
        return False

    def _argument_hints(self, name: str) -> list[str]:
        """Hints for ``retval`` and ``arg0`` in tracepoints, which have other names for them."""
        if self.checker.unit is None or self.checker.unit.kind.name != TRACEPOINT:
            return []
        probe = self.checker.unit.targets[0].probe
        if name == "retval":
            exit_ = probe.replace(":sys_enter_", ":sys_exit_")
            return ["use args.ret"] if exit_ == probe else [f"use args.ret in {exit_}"]
        return [f"use args.NAME; pytrace -lv '{probe}' lists the names"] if name.startswith("arg") else []

    def _call_function(self, node: nodes.Call, function: FunctionInfo) -> Type:
        self.checker.program.calls[node] = function
        wanted = function.parameters
        kinds = [(arg, self._argument(arg)) for arg in node.args]
        if len(kinds) != len(wanted):
            notes = [("declared here", function.span)]
            message = f"{function.name}() takes {counted(len(wanted), 'argument')}, not {len(kinds)}"
            self.checker.error(message, node.span, notes=notes)
            return function.result
        for (arg, kind), parameter in zip(kinds, wanted, strict=True):
            if not fits(kind, parameter.type):
                self.checker.error(
                    f"${parameter.name} of {function.name}() is {parameter.type}, this is {settle(kind)}",
                    arg.span,
                    notes=[("declared here", parameter.span)],
                )
        self.checker.callees.append((function, node.span))
        return function.result

    def warn_discarded(self, node: nodes.Expr, type_: Type) -> None:
        """Warn when a statement discards the result of a call."""
        row = self.checker.program.calls.get(node)
        name = row.name if isinstance(row, Builtin) else ""
        if name == "delete":
            self.checker.program.discarded.add(node)
        elif type_ != VOID and type_ is not UNKNOWN and name not in _IGNORABLE_RESULTS:
            self.checker.warn(
                "the value of this is not used", node.span, hints=["write _ = … to discard it explicitly"]
            )

    def read_imports(self, program: nodes.Program) -> None:
        """Register the functions of all imported object files."""
        for item in program.objects:
            try:
                functions = self.checker.kernel.object_functions(item.path, item.data)
            except TraceError as problem:
                self.checker.reported.error(str(problem), item.span, hints=problem.hints)
                continue
            for function in functions:
                name = function.prototype.name
                known = self.checker.imported.get(name)
                if known is not None and not function.static:
                    notes = [Note("the other one is imported here", known.span)]
                    self.checker.reported.error(f"the C function {name!r} is imported twice", item.span, notes=notes)
                if known is None:
                    self.checker.imported[name] = (
                        None if function.static else self._import_function(function.prototype, item)
                    )

    def _import_function(self, prototype: FunctionPrototype, item: nodes.BpfObject) -> ImportedFunction:
        parameters = tuple((name, self._complete_target(kind)) for name, kind in prototype.parameters)
        return ImportedFunction(prototype.name, parameters, self._complete_target(prototype.result), item.span)

    def _complete_target(self, type_: Type) -> Type:
        """Replace pointer targets by the script's or kernel's struct of that name: C may declare only some members."""
        if isinstance(type_, Pointer) and isinstance(type_.target, Struct) and type_.target.name:
            struct = self.checker.definitions.struct(type_.target.kind, type_.target.name)
            return replace(type_, target=struct) if struct is not None else type_
        return type_

    def _call_imported(self, node: nodes.Call) -> Type:
        """A call of an imported function."""
        function = self.checker.imported[node.name]
        argument_types = [self._argument(arg) for arg in node.args]
        if function is None:
            hints = ["remove 'static', or call it from a function that is not static"]
            message = f"the C function {node.name!r} is static: only its own file can call it"
            return self.checker.error(message, node.span, hints=hints)
        notes = [("imported here", function.span)]
        if not _is_callable(function):
            message = f"the C function {node.name!r} cannot be called from a script: {_signature(function)}"
            hints = ["it may have 5 parameters; parameters and result are integers, bools, enums or pointers"]
            return self.checker.error(message, node.span, hints=hints, notes=notes)
        if len(argument_types) != len(function.parameters):
            message = f"{node.name}() takes {counted(len(function.parameters), 'argument')}, not {len(argument_types)}"
            return self.checker.error(message, node.span, hints=[_signature(function)], notes=notes)
        for arg, argument_type, (name, wanted) in zip(node.args, argument_types, function.parameters, strict=True):
            if not _fits_parameter(argument_type, wanted):
                message = f"{name!r} of {node.name}() is {wanted}, this is {settle(argument_type)}"
                self.checker.error(message, arg.span, hints=[_signature(function)], notes=notes)
        self.checker.program.calls[node] = function
        return function.result

    def _argument(self, arg: nodes.Expr | nodes.TypeExpr) -> Type:
        """The type of an argument of an imported function."""
        if isinstance(arg, nodes.TypeExpr):
            return self.checker.error("a type cannot be an argument here", arg.span)
        return self.checker.value(arg)
