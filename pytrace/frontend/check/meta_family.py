"""Checks of builtins that are evaluated at compile time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import asdict

from pytrace.base.dispatch import handles_names
from pytrace.core.builtins import IN_SCOPE, bare_builtin
from pytrace.core.diagnostics import Diagnostics, TraceError, did_you_mean
from pytrace.core.kernel_info import FEATURES
from pytrace.core.probe_kinds import is_call
from pytrace.core.text import Format, parse_integer
from pytrace.core.types import BOOL, UINT64, VOID, Array, Enum, Int, Pointer, Record, String, Struct, Type
from pytrace.frontend.check.checker import Arguments, Node
from pytrace.frontend.check.conversions import UNKNOWN, Unknown, is_text, literal, settle
from pytrace.frontend.check.expressions import BuiltinChecks
from pytrace.frontend.expand import call_probes
from pytrace.frontend.probes import attach_points
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import Existence, OneOf

_LITERALS = (nodes.IntLiteral, nodes.BoolLiteral, nodes.StringLiteral)


_QUESTIONS: Mapping[str, Callable[[Type], bool]] = {
    "is_array": lambda type_: isinstance(type_, Array),
    "is_integer": lambda type_: isinstance(type_, Int | Enum),
    "is_ptr": lambda type_: isinstance(type_, Pointer),
    "is_str": lambda type_: isinstance(type_, String),
    "is_unsigned_integer": lambda type_: isinstance(type_, Int) and not type_.signed,
}


def _negative_literal(value: nodes.Node) -> bool:
    return isinstance(value, nodes.Unary) and value.operator == "-" and isinstance(value.operand, nodes.IntLiteral)


_LAYOUTS = ("names", "lines", "offsets", "all")
"""The words of ``stack_layout()`` (:mod:`pytrace.render.stack_layout`)."""


def _message(format_: Format, values: list[int | bool | bytes]) -> str:
    waiting = iter(values)
    return "".join(
        part.decode(errors="replace") if isinstance(part, bytes) else _conversion_text(part.name, next(waiting))
        for part in format_.parts
    )


def _conversion_text(name: str, value: int | bytes) -> str:
    """A number formatted by the printf conversion *name*; a text as it is."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if name in ("x", "p"):
        return f"{value:#x}" if name == "p" else f"{value:x}"
    if isinstance(value, bool):
        return str(value).lower()
    return {"X": f"{value:X}", "o": f"{value:o}"}.get(name, str(value))


def _config_type(value: str | int | bool) -> Type:
    if isinstance(value, str):
        return String(len(value.encode(errors="surrogateescape")) + 1)
    return BOOL if isinstance(value, bool) else literal(value)


def _type_argument(argument: nodes.Expr | nodes.TypeExpr) -> nodes.TypeExpr | None:
    """The type that an argument denotes; a bare name denotes a type unless it is the name of a value."""
    if isinstance(argument, nodes.TypeExpr):
        return argument
    if isinstance(argument, nodes.Identifier) and not bare_builtin(argument.name):
        return nodes.NamedType(argument.span, argument.name)
    return None


def _tag_and_name(node: nodes.TypeExpr) -> tuple[str, str]:
    """Kind and name of the type whose existence *node* depends on."""
    while isinstance(node, nodes.PointerTypeExpr | nodes.ArrayTypeExpr):
        node = node.target if isinstance(node, nodes.PointerTypeExpr) else node.element
    if isinstance(node, nodes.StructTypeExpr):
        return node.kind, node.name
    return "typedef", node.name if isinstance(node, nodes.NamedType) else ""


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


def _range(type_: Type) -> tuple[int, int]:
    bits, signed = 8 * type_.size, isinstance(type_, Int | Enum) and type_.signed
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


class MetaChecks(BuiltinChecks):
    """Checks of builtins that are evaluated at compile time."""

    @handles_names("is_array", "is_integer", "is_ptr", "is_str", "is_unsigned_integer")
    def question(self, node: Node, arguments: Arguments) -> Type:
        """``is_array(x)`` and the like."""
        type_ = self.type_names.operand_type(arguments[0])
        if not isinstance(type_, Unknown):
            self.checker.set_constant(node, _QUESTIONS[node.name](type_))
        return BOOL

    @handles_names("is_literal")
    def is_literal(self, node: Node, arguments: Arguments) -> Type:
        """``is_literal(x)``; ``in_scope`` is a literal if no process is selected."""
        value = arguments[0]
        if isinstance(value, nodes.Expr):
            self.checker.value(value)
        options = self.checker.options
        # Where the tracer alone is left out, no process is selected.
        everywhere = (
            isinstance(value, nodes.Identifier)
            and value.name == IN_SCOPE
            and not options.restricted
            and not options.ahead
        )
        self.checker.set_constant(node, everywhere or isinstance(value, _LITERALS) or _negative_literal(value))
        return BOOL

    # ------------------------------------------------------------------------------------------ assertions

    @handles_names("assert_str")
    def assert_str(self, _node: Node, arguments: Arguments) -> Type:
        """``assert_str(x)``."""
        type_ = self.checker.value(self.checks.expression(arguments[0]))
        if not isinstance(type_, Unknown) and not is_text(type_):
            self.checker.error(f"this must be a string, not {settle(type_)}", arguments[0].span)
        return VOID

    @handles_names("static_assert")
    def static_assert(self, node: Node, arguments: Arguments) -> Type:
        """``static_assert(condition, message)``."""
        condition = self.checks.expression(arguments[0])
        message = self.checker.constant_text(arguments[1], "the message of static_assert()")
        holds = self.checker.condition(condition)
        if holds is None:
            if not isinstance(self.checker.program.types[condition], Unknown):
                self.checker.error("the condition of static_assert() must be known at compile time", condition.span)
        elif not holds:
            self.checker.error((message or b"").decode(errors="replace") or "static_assert() does not hold", node.span)
        return VOID

    @handles_names("output_format")
    def output_format(self, node: Node, arguments: Arguments) -> Type:
        """``output_format(name)``."""
        name = self.checks.literal_text(arguments[0], "the format of output_format()")
        if name is not None:
            if self.checker.program.output_format not in ("", name):
                return self.checker.error(
                    f"another output_format() says {self.checker.program.output_format!r}", node.span
                )
            self.checker.program.output_format = name
        return VOID

    @handles_names("stack_layout")
    def stack_layout(self, node: Node, arguments: Arguments) -> Type:
        """``stack_layout(word)``."""
        word = self.checks.literal_text(arguments[0], "the word of stack_layout()")
        if word is not None:
            if word not in _LAYOUTS:
                hints = [f"words are {', '.join(_LAYOUTS)}"]
                return self.checker.error(f"stack_layout() has no {word!r}", node.span, hints=hints)
            self.checker.program.stack_layout = (*dict.fromkeys((*self.checker.program.stack_layout, word)),)
        return VOID

    @handles_names("fail")
    def fail(self, node: Node, arguments: Arguments) -> Type:
        """``fail(fmt, …)``."""
        format_, values = self.checks.formatted(node, arguments)
        if format_ is None:
            return VOID
        shown = []
        for value in values:
            constant = self.checker.constant(value)
            if constant is None:
                return self.checker.error("the values of fail() must be literals", value.span)
            shown.append(constant)
        self.checker.error(_message(format_, shown) or "fail() was reached; it says nothing more", node.span)
        return VOID

    @handles_names("only_if")
    def only_if(self, node: Node, _arguments: Arguments) -> Type:
        """``only_if(…)`` outside of a record; macro expansion has replaced those that are members of records."""
        hints = ["row((time=only_if(CONDITION, VALUE), …)) has the column time only where CONDITION is true"]
        return self.checker.error("only_if() is the value of a member of a record", node.span, hints=hints)

    # ------------------------------------------------------------------------------------------ settings

    @handles_names("default_str_length")
    def default_str_length(self, node: Node, _arguments: Arguments) -> Type:
        """``default_str_length()``."""
        self.checker.set_constant(node, self.checker.config.max_strlen)
        return UINT64

    @handles_names("config")
    def config(self, node: Node, arguments: Arguments) -> Type:
        """``config("key")``, or ``config()`` for a record of all keys."""
        values = asdict(self.checker.config)
        if not arguments:
            return Record(tuple(values), tuple(settle(_config_type(value)) for value in values.values()))
        name = self.checks.literal_text(arguments[0], "the key of config()")
        if name is None:
            return UNKNOWN
        if name not in values:
            return self.checker.error(
                f"there is no configuration key {name!r}", node.span, hints=did_you_mean(name, values)
            )
        value = values[name]
        self.checker.set_constant(node, value.encode(errors="surrogateescape") if isinstance(value, str) else value)
        return _config_type(value)

    @handles_names("getopt")
    def getopt(self, node: Node, _arguments: Arguments) -> Type:
        """A ``getopt(…)`` with wrong arguments; the parameters pass has replaced all others."""
        if isinstance(node, nodes.Call) and all(isinstance(item, _LITERALS) for item in node.args):
            return self.checks.unreplaced_parameter(node)
        return self.checker.error("the arguments of getopt() must be literals", node.span)

    def _name_argument(self, node: Node, arguments: Arguments) -> str | None:
        """The name that a builtin asks about; None after an error."""
        return self.checks.literal_text(arguments[0], f"the argument of {node.name}()")

    @handles_names("kfunc_exist")
    def kfunc_exist(self, node: Node, arguments: Arguments) -> Type:
        """``kfunc_exist("f")``."""
        name = self._name_argument(node, arguments)
        if name is None:
            return BOOL
        return self._record_answer(node, self.checker.kernel.function(name) is not None, "kfunc", name)

    @handles_names("kfunc_allowed")
    def kfunc_allowed(self, node: Node, arguments: Arguments) -> Type:
        """``kfunc_allowed("f")``: whether programs of the probe's type may call generic kfuncs."""
        name = self._name_argument(node, arguments)
        if name is None:
            return BOOL
        exists = self.checker.kernel.function(name) is not None
        self._record_answer(node, exists, "kfunc", name)
        self.checker.set_constant(node, exists and self._can_call_kfuncs())
        return BOOL

    def _can_call_kfuncs(self) -> bool:
        """Whether the probe may call kfuncs; at the root of a script, whether probes of any kind may."""
        if self.checker.unit is not None:
            return self.checker.kernel.feature(f"kfunc_{self.checker.unit.kind.program_type}")
        return self.checker.function is None and any(
            self.checker.kernel.feature(name) for name in FEATURES if name[:6] == "kfunc_"
        )

    # ------------------------------------------------------------------------------------------ what exists

    def _record_answer(self, node: Node, answer: bool, *question: str) -> Type:
        self.checker.set_constant(node, answer)
        self.checker.program.facts[node] = Existence(
            question if question[0] == "build" else (*question, str(int(answer)))
        )
        return BOOL

    @handles_names("probe_exist")
    def probe_exist(self, node: Node, arguments: Arguments) -> Type:
        """``probe_exist("provider:…")``."""
        text = self.checks.literal_text(arguments[0], "the argument of probe_exist()")
        if text is None:
            return BOOL
        problems = Diagnostics()
        options, kernel = self.checker.options, self.checker.kernel

        def exist(*points: str) -> bool:
            return all(attach_points.exists(one, options, kernel, self.checker.config, problems) for one in points)

        if is_call(text):
            exists = any(exist(*pair) for pair in call_probes.pairs(text, options, kernel, problems))
        else:
            exists = exist(text)
        for problem in problems.errors:
            self.checker.error(problem.message, arguments[0].span, hints=problem.hints)
        return self._record_answer(node, exists, "build", f'probe_exist("{text}"), which was decided at compile time')

    @handles_names("constant_exist")
    def constant_exist(self, node: Node, arguments: Arguments) -> Type:
        """``constant_exist("NAME")``: an enumerator, or a macro of the script or its headers."""
        name = self._name_argument(node, arguments)
        if name is None:
            return BOOL
        known = self.checker.definitions
        exists = known.enumerator(name) is not None or known.macro(name) is not None or known.constant(name) is not None
        return self._record_answer(node, exists, "constant_exist", name)

    @handles_names("symbol_exist")
    def symbol_exist(self, node: Node, arguments: Arguments) -> Type:
        """``symbol_exist("name")``: whether ``kaddr`` finds it."""
        name = self._name_argument(node, arguments)
        if name is None:
            return BOOL
        try:
            exists = self.checker.kernel.kernel_symbol(name) is not None
        except TraceError:
            exists = False  # the kernel hides its address from this process
        return self._record_answer(node, exists, "symbol_exist", name)

    @handles_names("type_exist")
    def type_exist(self, node: Node, arguments: Arguments) -> Type:
        """``type_exist(struct X)``, ``type_exist(name_t)``."""
        type_ = _type_argument(arguments[0])
        if type_ is None:
            return self.checker.error(
                "type_exist() takes a type", arguments[0].span, hints=["for example, struct task_struct"]
            )
        return self._record_answer(
            node, not isinstance(self._type_or_unknown(type_), Unknown), "type_exist", *_tag_and_name(type_)
        )

    def _type_or_unknown(self, node: nodes.TypeExpr) -> Type:
        """The type that *node* denotes; UNKNOWN, without an error, if there is none."""
        kept, self.checker.diagnostics = self.checker.diagnostics, Diagnostics()
        try:
            return self.type_names.resolve(node)
        finally:
            self.checker.diagnostics = kept

    @handles_names("member_exist")
    def member_exist(self, node: Node, arguments: Arguments) -> Type:
        """``member_exist(T or expression, a.b)``."""
        path = _member_path(arguments[1])
        if path is None:
            hints = ["for example, member_exist(struct sock, sk_protocol)"]
            return self.checker.error(
                "the second argument of member_exist() is a member", arguments[1].span, hints=hints
            )
        shown = ".".join(path)
        if isinstance(arguments[0], nodes.Identifier) and arguments[0].name == "args":
            return self._argument_exists(node, arguments[0], path)
        asked = _type_argument(arguments[0])
        if asked is not None:
            exists = _has_member(self._type_or_unknown(asked), path)
            return self._record_answer(node, exists, "member_exist", *_tag_and_name(asked), shown)
        type_ = self.type_names.operand_type(arguments[0])
        if isinstance(type_, Unknown):
            return BOOL
        return self._record_answer(node, _has_member(type_, path), "build", f"member_exist() of {shown} in {type_}")

    def _argument_exists(self, node: Node, args: nodes.Identifier, path: list[str]) -> Type:
        """``member_exist(args, a.b)`` in the block of a probe.

        Probes with ``arg0`` have ``args`` only if the argument types are known; otherwise no member exists.
        """
        unit = self.checker.unit
        if unit is None or not unit.kind.positional:
            known = self.checks.require_args(args)
            if unit is None or not known:
                return UNKNOWN
        argument = unit.context.argument(path[0])
        exists = argument is not None and (len(path) == 1 or _has_member(argument.type, path[1:]))
        probe = unit.targets[0].probe if unit.targets else unit.kind.name
        return self._record_answer(node, exists, "build", f"member_exist(args, {'.'.join(path)}) in {probe}")

    # ------------------------------------------------------------------------------------------ lists of values

    @handles_names("one_of")
    def one_of(self, node: Node, arguments: Arguments) -> Type:
        """``one_of(value, "80,443")``."""
        value = self.checks.expression(arguments[0])
        type_ = self.checker.value(value)
        text = self.checker.constant_text(arguments[1], "the list of one_of()")
        if text is None or isinstance(type_, Unknown):
            return BOOL
        entries = [entry.strip() for entry in text.replace(b"\n", b",").split(b",")] if text.strip() else []
        if is_text(type_):
            return self._comparison(node, value, tuple(dict.fromkeys(entries)))
        if not isinstance(settle(type_), Int | Enum):
            return self.checker.error(f"one_of() compares integers and strings, not {settle(type_)}", value.span)
        limit = settle(type_) if self.checker.constant(value) is None else None
        numbers = [self._entry(entry, limit, arguments[1]) for entry in entries]
        return self._comparison(node, value, tuple(sorted({number for number in numbers if number is not None})))

    def _entry(self, entry: bytes, type_: Type | None, argument: nodes.Node) -> int | None:
        """The number of an entry; None for an invalid one, and for one that no value of *type_* (None: any) equals."""
        shown = entry.decode(errors="replace")
        number = parse_integer(shown)
        if number is None and isinstance(type_, Enum):
            number = dict(type_.members).get(shown)
        if number is None:
            what = f"{shown!r} in the list" if shown else "an empty entry in the list"
            wanted = f"an integer or a member of {type_}" if isinstance(type_, Enum) else "an integer"
            self.checker.error(
                f"{what} of one_of() is not {wanted}", argument.span, hints=["entries are separated by ','"]
            )
            return None
        if type_ is None:
            return number
        low, high = _range(type_)
        if low <= number <= high:
            return number
        self.checker.warn(f"{shown} in the list of one_of() never matches: the value is {type_}", argument.span)
        return None

    def _comparison(self, node: Node, value: nodes.Expr, entries: tuple[int, ...] | tuple[bytes, ...]) -> Type:
        known = self.checker.constant(value)
        if not entries:
            self.checker.set_constant(node, False)
        elif known is not None:
            self.checker.set_constant(node, known in entries)
        else:
            self.checker.program.facts[node] = OneOf(entries)
        return BOOL


FAMILIES = (MetaChecks,)
