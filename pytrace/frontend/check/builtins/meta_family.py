"""Builtins that are evaluated at compile time."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import asdict

from pytrace.core.builtins import IN_SCOPE, bare_builtin
from pytrace.core.diagnostics import Diagnostics, TraceError, did_you_mean
from pytrace.core.formats import Format
from pytrace.core.kernel_info import FEATURES
from pytrace.core.numbers import parse_integer
from pytrace.core.types import BOOL, UINT64, VOID, Array, Enum, Int, Pointer, Record, String, Struct, Type
from pytrace.frontend.check.inference.argument_checks import (
    expression,
    formatted,
    is_text,
    literal_text,
    require_args,
)
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, literal, settle
from pytrace.frontend.check.inference.type_names import operand_type, resolve
from pytrace.frontend.check.rules.expressions import unreplaced_parameter
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import Existence, OneOf

_LITERALS = (nodes.IntLiteral, nodes.BoolLiteral, nodes.StringLiteral)


# ---------------------------------------------------------------------------------------------- queries


def _question(test: Callable[[Type], bool]) -> Callable[[Checker, Node, Arguments], Type]:
    def check(checker: Checker, node: Node, arguments: Arguments) -> Type:
        type_ = operand_type(checker, arguments[0])
        if not isinstance(type_, Unknown):
            checker.set_constant(node, test(type_))
        return BOOL

    return check


is_array = _question(lambda kind: isinstance(kind, Array))
is_integer = _question(lambda kind: isinstance(kind, Int | Enum))
is_ptr = _question(lambda kind: isinstance(kind, Pointer))
is_str = _question(lambda kind: isinstance(kind, String))
is_unsigned_integer = _question(lambda kind: isinstance(kind, Int) and not kind.signed)


def is_literal(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``is_literal(x)``; ``in_scope`` is a literal if no process is selected."""
    value = arguments[0]
    if isinstance(value, nodes.Expr):
        checker.value(value)
    options = checker.options
    # Where the tracer alone is left out, no process is selected.
    everywhere = isinstance(value, nodes.Identifier) and value.name == IN_SCOPE \
        and not options.restricted and not options.ahead
    checker.set_constant(node, everywhere or isinstance(value, _LITERALS) or _negative_literal(value))
    return BOOL


def _negative_literal(value: nodes.Node) -> bool:
    return isinstance(value, nodes.Unary) and value.operator == "-" and isinstance(value.operand, nodes.IntLiteral)


# ---------------------------------------------------------------------------------------------- assertions


def assert_str(checker: Checker, _node: Node, arguments: Arguments) -> Type:
    """``assert_str(x)``."""
    type_ = checker.value(expression(checker, arguments[0]))
    if not isinstance(type_, Unknown) and not is_text(type_):
        checker.error(f"this must be a string, not {settle(type_)}", arguments[0].span)
    return VOID


def static_assert(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``static_assert(condition, message)``."""
    condition = expression(checker, arguments[0])
    message = checker.constant_text(arguments[1], "the message of static_assert()")
    holds = checker.condition(condition)
    if holds is None:
        if not isinstance(checker.program.types[condition], Unknown):
            checker.error("the condition of static_assert() must be known at compile time", condition.span)
    elif not holds:
        checker.error((message or b"").decode(errors="replace") or "static_assert() does not hold", node.span)
    return VOID


def output_format(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``output_format(name)``."""
    name = literal_text(checker, arguments[0], "the format of output_format()")
    if name is not None:
        if checker.program.output_format not in ("", name):
            return checker.error(f"another output_format() says {checker.program.output_format!r}", node.span)
        checker.program.output_format = name
    return VOID


_LAYOUTS = ("names", "lines", "offsets", "all")
"""The words of ``stack_layout()`` (:mod:`pytrace.render.maps.stack_layout`)."""


def stack_layout(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``stack_layout(word)``."""
    word = literal_text(checker, arguments[0], "the word of stack_layout()")
    if word is not None:
        if word not in _LAYOUTS:
            hints = [f"words are {', '.join(_LAYOUTS)}"]
            return checker.error(f"stack_layout() has no {word!r}", node.span, hints=hints)
        checker.program.stack_layout = (*dict.fromkeys((*checker.program.stack_layout, word)),)
    return VOID


def fail(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``fail(fmt, …)``."""
    format_, values = formatted(checker, node, arguments)
    if format_ is None:
        return VOID
    shown = []
    for value in values:
        constant = checker.constant(value)
        if constant is None:
            return checker.error("the values of fail() must be literals", value.span)
        shown.append(constant)
    checker.error(_fill(format_, shown) or "fail() was reached; it says nothing more", node.span)
    return VOID


def _fill(format_: Format, values: list[int | bool | bytes]) -> str:
    waiting = iter(values)
    return "".join(
        part.decode(errors="replace") if isinstance(part, bytes) else _shown(part.name, next(waiting))
        for part in format_.parts
    )


def _shown(name: str, value: int | bool | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else conversion_text(name, value)


def conversion_text(name: str, value: int) -> str:
    """A number formatted by the printf conversion *name*."""
    if name in ("x", "p"):
        return f"{value:#x}" if name == "p" else f"{value:x}"
    if isinstance(value, bool):
        return str(value).lower()
    return {"X": f"{value:X}", "o": f"{value:o}"}.get(name, str(value))


def only_if(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``only_if(…)`` outside of a record; macro expansion has replaced those that are members of records."""
    hints = ["row((time=only_if(CONDITION, VALUE), …)) has the column time only where CONDITION is true"]
    return checker.error("only_if() is the value of a member of a record", node.span, hints=hints)


# ---------------------------------------------------------------------------------------------- settings


def default_str_length(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``default_str_length()``."""
    checker.set_constant(node, checker.config.max_strlen)
    return UINT64


def config(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``config("key")``, or ``config()`` for a record of all keys."""
    values = asdict(checker.config)
    if not arguments:
        return Record(tuple(values), tuple(settle(_config_type(value)) for value in values.values()))
    name = literal_text(checker, arguments[0], "the key of config()")
    if name is None:
        return UNKNOWN
    if name not in values:
        return checker.error(f"there is no configuration key {name!r}", node.span, hints=did_you_mean(name, values))
    value = values[name]
    checker.set_constant(node, value.encode(errors="surrogateescape") if isinstance(value, str) else value)
    return _config_type(value)


def _config_type(value: str | int | bool) -> Type:
    if isinstance(value, str):
        return String(len(value.encode(errors="surrogateescape")) + 1)
    return BOOL if isinstance(value, bool) else literal(value)


def getopt(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """A ``getopt(…)`` with wrong arguments; the parameters pass has replaced all others."""
    if isinstance(node, nodes.Call) and all(isinstance(item, _LITERALS) for item in node.args):
        return unreplaced_parameter(checker, node)
    return checker.error("the arguments of getopt() must be literals", node.span)


def _about(ask: Callable[[Checker, Node, str], Type]) -> Callable[[Checker, Node, Arguments], Type]:
    """The check of a question about the name that is the argument."""

    def check(checker: Checker, node: Node, arguments: Arguments) -> Type:
        name = literal_text(checker, arguments[0], f"the argument of {node.name}()")
        return BOOL if name is None else ask(checker, node, name)

    return check


@_about
def kfunc_exist(checker: Checker, node: Node, name: str) -> Type:
    """``kfunc_exist("f")``."""
    return _answer(checker, node, checker.kernel.function(name) is not None, "kfunc", name)


@_about
def kfunc_allowed(checker: Checker, node: Node, name: str) -> Type:
    """``kfunc_allowed("f")``: whether programs of the probe's type may call generic kfuncs."""
    exists = checker.kernel.function(name) is not None
    _answer(checker, node, exists, "kfunc", name)
    checker.set_constant(node, exists and _may_call(checker))
    return BOOL


def _may_call(checker: Checker) -> bool:
    """Whether the probe may call kfuncs; at the root of a script, whether probes of any kind may."""
    if checker.unit is not None:
        return checker.kernel.feature(f"kfunc_{checker.unit.kind.program_type}")
    return checker.function is None and any(checker.kernel.feature(name) for name in FEATURES if name[:6] == "kfunc_")


# ---------------------------------------------------------------------------------------------- what exists


def _answer(checker: Checker, node: Node, answer: bool, *question: str) -> Type:
    checker.set_constant(node, answer)
    checker.program.facts[node] = Existence(question if question[0] == "build" else (*question, str(int(answer))))
    return BOOL


def probe_exist(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``probe_exist("provider:…")``."""
    text = literal_text(checker, arguments[0], "the argument of probe_exist()")
    if text is None:
        return BOOL
    exists = checker.rules.probe_exists(checker, text, arguments[0].span)
    return _answer(checker, node, exists, "build", f'probe_exist("{text}"), which was decided at compile time')


@_about
def constant_exist(checker: Checker, node: Node, name: str) -> Type:
    """``constant_exist("NAME")``: an enumerator, or a macro of the script or its headers."""
    known = checker.definitions
    exists = known.enumerator(name) is not None or known.macro(name) is not None or known.constant(name) is not None
    return _answer(checker, node, exists, "constant_exist", name)


@_about
def symbol_exist(checker: Checker, node: Node, name: str) -> Type:
    """``symbol_exist("name")``: whether ``kaddr`` finds it."""
    try:
        exists = checker.kernel.kernel_symbol(name) is not None
    except TraceError:
        exists = False  # the kernel hides its address from this process
    return _answer(checker, node, exists, "symbol_exist", name)


def type_exist(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``type_exist(struct X)``, ``type_exist(name_t)``."""
    type_ = _type_asked(arguments[0])
    if type_ is None:
        return checker.error("type_exist() takes a type", arguments[0].span, hints=["for example, struct task_struct"])
    return _answer(checker, node, not isinstance(_quietly(checker, type_), Unknown), "type_exist", *_named(type_))


def _type_asked(argument: nodes.Expr | nodes.TypeExpr) -> nodes.TypeExpr | None:
    """The type that an argument denotes; a bare name denotes a type unless it is the name of a value."""
    if isinstance(argument, nodes.TypeExpr):
        return argument
    if isinstance(argument, nodes.Identifier) and not bare_builtin(argument.name):
        return nodes.NamedType(argument.span, argument.name)
    return None


def _quietly(checker: Checker, node: nodes.TypeExpr) -> Type:
    """The type that *node* denotes; UNKNOWN, without an error, if there is none."""
    kept, checker.diagnostics = checker.diagnostics, Diagnostics()
    try:
        return resolve(checker, node)
    finally:
        checker.diagnostics = kept


def _named(node: nodes.TypeExpr) -> tuple[str, str]:
    """Kind and name of the type whose existence *node* depends on."""
    while isinstance(node, nodes.PointerTypeExpr | nodes.ArrayTypeExpr):
        node = node.target if isinstance(node, nodes.PointerTypeExpr) else node.element
    if isinstance(node, nodes.StructTypeExpr):
        return node.kind, node.name
    return "typedef", node.name if isinstance(node, nodes.NamedType) else ""


def member_exist(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``member_exist(T or expression, a.b)``."""
    path = _member_path(arguments[1])
    if path is None:
        hints = ["for example, member_exist(struct sock, sk_protocol)"]
        return checker.error("the second argument of member_exist() is a member", arguments[1].span, hints=hints)
    shown = ".".join(path)
    if isinstance(arguments[0], nodes.Identifier) and arguments[0].name == "args":
        return _argument_exists(checker, node, arguments[0], path)
    asked = _type_asked(arguments[0])
    if asked is not None:
        exists = _has_member(_quietly(checker, asked), path)
        return _answer(checker, node, exists, "member_exist", *_named(asked), shown)
    type_ = operand_type(checker, arguments[0])
    if isinstance(type_, Unknown):
        return BOOL
    return _answer(checker, node, _has_member(type_, path), "build", f"member_exist() of {shown} in {type_}")


def _argument_exists(checker: Checker, node: Node, args: nodes.Identifier, path: list[str]) -> Type:
    """``member_exist(args, a.b)`` in the block of a probe.

    Probes with ``arg0`` have ``args`` only if the argument types are known; otherwise no member exists.
    """
    unit = checker.unit
    if unit is None or not unit.kind.positional:
        known = require_args(checker, args)
        if unit is None or not known:
            return UNKNOWN
    argument = unit.context.argument(path[0])
    exists = argument is not None and (len(path) == 1 or _has_member(argument.type, path[1:]))
    probe = unit.targets[0].probe if unit.targets else unit.kind.name
    return _answer(checker, node, exists, "build", f"member_exist(args, {'.'.join(path)}) in {probe}")


def _member_path(node: nodes.Node) -> list[str] | None:
    if isinstance(node, nodes.FieldAccess):
        before = _member_path(node.base)
        return None if before is None else [*before, node.name]
    return [node.name] if isinstance(node, nodes.Identifier) else None


def _has_member(type_: Type, path: list[str]) -> bool:
    """Whether a struct, or the struct that a pointer points to, has the member at *path*."""
    for step in path:
        inner = type_.target if isinstance(type_, Pointer) else type_
        inner = inner.element if isinstance(inner, Array) else inner
        if isinstance(inner, Record) and step in inner.names:
            type_ = inner.members[inner.names.index(step)]
            continue
        member = inner.find(step) if isinstance(inner, Struct) else None
        if member is None:
            return False
        type_ = member.type
    return True


# ---------------------------------------------------------------------------------------------- lists of values


def one_of(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``one_of(value, "80,443")``."""
    value = expression(checker, arguments[0])
    type_ = checker.value(value)
    text = checker.constant_text(arguments[1], "the list of one_of()")
    if text is None or isinstance(type_, Unknown):
        return BOOL
    entries = [entry.strip() for entry in text.replace(b"\n", b",").split(b",")] if text.strip() else []
    if is_text(type_):
        return _compared(checker, node, value, tuple(dict.fromkeys(entries)))
    if not isinstance(settle(type_), Int | Enum):
        return checker.error(f"one_of() compares integers and strings, not {settle(type_)}", value.span)
    limit = settle(type_) if checker.constant(value) is None else None
    numbers = [_entry(checker, entry, limit, arguments[1]) for entry in entries]
    return _compared(checker, node, value, tuple(sorted({number for number in numbers if number is not None})))


def _entry(checker: Checker, entry: bytes, type_: Type | None, argument: nodes.Node) -> int | None:
    """The number of an entry; None for an invalid entry, and for one that no value of *type_* (None: any) equals."""
    shown = entry.decode(errors="replace")
    number = parse_integer(shown)
    if number is None and isinstance(type_, Enum):
        number = dict(type_.members).get(shown)
    if number is None:
        what = f"{shown!r} in the list" if shown else "an empty entry in the list"
        wanted = f"an integer or a member of {type_}" if isinstance(type_, Enum) else "an integer"
        checker.error(f"{what} of one_of() is not {wanted}", argument.span, hints=["entries are separated by ','"])
        return None
    if type_ is None:
        return number
    low, high = _range(type_)
    if low <= number <= high:
        return number
    checker.warn(f"{shown} in the list of one_of() never matches: the value is {type_}", argument.span)
    return None


def _range(type_: Type) -> tuple[int, int]:
    bits, signed = 8 * type_.size, isinstance(type_, Int | Enum) and type_.signed
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _compared(checker: Checker, node: Node, value: nodes.Expr, entries: tuple[int, ...] | tuple[bytes, ...]) -> Type:
    known = checker.constant(value)
    if not entries:
        checker.set_constant(node, False)
    elif known is not None:
        checker.set_constant(node, known in entries)
    else:
        checker.program.facts[node] = OneOf(entries)
    return BOOL
