"""Parameters of a script: positional (``$1``, ``$#``) and named (``getopt``), replaced by their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pytrace.base.dispatch import by_class, on
from pytrace.base.fast_dataclass import dataclass, replace
from pytrace.core.diagnostics import Diagnostics, Note, similar
from pytrace.core.manifest_sections import Parameters
from pytrace.core.numbers import parse_flag, parse_integer
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Span
from pytrace.frontend.ast import nodes, visitor

Value = bool | int | bytes


@dataclass(frozen=True, slots=True)
class NamedParameter:
    """A named parameter as the script declares it; *default* is False for a flag."""

    name: str
    default: Value
    description: str
    span: Span


def usage(program: nodes.Program) -> list[NamedParameter]:
    """The named parameters of a script in order of their first ``getopt``, for its own ``--help``."""
    found: dict[str, NamedParameter] = {}
    for call in _getopts(program):
        declared = _declared(call, None)
        if declared is not None:
            kept = found.setdefault(declared.name, declared)
            if declared.description and not kept.description:
                found[declared.name] = declared
    return list(found.values())


def help_text(program: nodes.Program, name: str) -> str:
    """The text of ``--help`` of the script *name*: one line for each named parameter."""
    known = usage(program)
    if not known:
        return f"{name} has no named parameters\n"
    return f"parameters of {name}:\n{help_lines(known)}"


def help_lines(known: list[NamedParameter]) -> str:
    """One line for each of the *known* parameters."""
    forms = [_form(item) for item in known]
    width = max((len(text) for text in forms), default=0)
    lines = []
    for text, item in zip(forms, known, strict=True):
        default = "" if item.default is False else f" (default: {_shown(item.default)})"
        lines.append(f"  {text:{width}}  {item.description}{default}".rstrip() + "\n")
    return "".join(lines)


def substitute(program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics) -> nodes.Program:
    """*program* with all parameters replaced by literals.

    A positional parameter becomes an integer when its text is one, else a string; ``str($N)`` is always a string.
    A missing one is 0, or the empty string, with a warning.
    """
    declared = _check_named(program, options, diagnostics)
    substitution = _Substitution(program, options, diagnostics, declared)
    result = visitor.rebuild(program, substitution.replace)
    assert isinstance(result, nodes.Program)
    return result


def describe(program: nodes.Program, options: CompileOptions) -> Parameters:
    """The parameters for the manifest of an ahead-of-time file: fixed values, and all declarations."""
    numbers = [node.number for node in visitor.walk(program) if isinstance(node, nodes.PositionalParam)]
    known = usage(program)
    return Parameters(
        options.positional,
        options.named,
        tuple(item.name for item in known),
        help_lines(known),
        max(numbers, default=0),
    )


class _Substitution:
    """Replaces nodes bottom-up.

    *texts* are the parameters below the first argument of ``str``; the literals that replace them are kept in *made*,
    so that the sum and the call around them are recognised when they are reached.
    """

    def __init__(
        self,
        program: nodes.Program,
        options: CompileOptions,
        diagnostics: Diagnostics,
        declared: dict[str, NamedParameter],
    ) -> None:
        self.options = options
        self.diagnostics = diagnostics
        self.declared = declared
        self.named = dict(options.named)
        self.ahead = options.ahead
        self.texts = {node for call in visitor.walk(program) for node in _text_parameters(call)}
        self.made: set[nodes.Node] = set()

    def replace(self, node: nodes.Node) -> nodes.Node:
        """The replacement of *node*, whose children are replaced already."""
        handler = _HANDLERS.get(type(node))
        return handler(self, node) if handler is not None else node

    def _positional(self, node: nodes.PositionalParam) -> nodes.Expr:
        text = self._value(node)
        if text is None and self.ahead:
            return self._open(node)
        if node in self.texts:
            return self._literal(node.span, _bytes(text or ""))
        if text is None:
            given = len(self.options.positional)
            self.diagnostics.warn(
                f"parameter ${node.number} was not given; it is 0",
                node.span,
                hints=[f"the script was started with {given} parameter{'' if given == 1 else 's'}"],
            )
            return nodes.IntLiteral(node.span, 0)
        number = parse_integer(text)
        return nodes.StringLiteral(node.span, _bytes(text)) if number is None else nodes.IntLiteral(node.span, number)

    def _open(self, node: nodes.PositionalParam) -> nodes.Expr:
        """A parameter whose value is given at each run of the ahead-of-time file: a number, or text inside ``str``."""
        if node not in self.texts:
            return nodes.OpenParameter(node.span, str(node.number), "number", "0")
        made = nodes.OpenParameter(node.span, str(node.number), "text")
        self.made.add(made)
        return made

    def _count(self, node: nodes.ParamCount) -> nodes.Expr:
        if self.ahead:
            return nodes.OpenParameter(node.span, "#", "number", str(len(self.options.positional)))
        return nodes.IntLiteral(node.span, len(self.options.positional))

    def _value(self, node: nodes.PositionalParam) -> str | None:
        known = self.options.positional
        return known[node.number - 1] if node.number <= len(known) else None

    def _literal(self, span: Span, text: bytes) -> nodes.StringLiteral:
        literal = nodes.StringLiteral(span, text)
        self.made.add(literal)
        return literal

    def _sum(self, node: nodes.Binary) -> nodes.Expr:
        """``$N + skip`` inside ``str``: the text without its first characters."""
        for text, count in ((node.left, node.right), (node.right, node.left)):
            if text in self.made and isinstance(text, nodes.StringLiteral) and isinstance(count, nodes.IntLiteral):
                if count.value > len(text.value):
                    message = f"the parameter has {len(text.value)} characters; nothing is left after {count.value}"
                    self.diagnostics.warn(message, count.span)
                return self._literal(node.span, text.value[count.value :])
            if text in self.made and isinstance(text, nodes.OpenParameter) and isinstance(count, nodes.IntLiteral):
                made = replace(text, span=node.span, skip=count.value)
                self.made.add(made)
                return made
        return node

    def _call(self, node: nodes.Call) -> nodes.Expr:
        if node.name == "getopt":
            return self._getopt(node)
        first = node.args[0] if node.name == "str" and len(node.args) == 1 else None
        return first if isinstance(first, nodes.StringLiteral | nodes.OpenParameter) and first in self.made else node

    def _getopt(self, node: nodes.Call) -> nodes.Expr:
        declared = _declared(node, None)
        if declared is None:
            return nodes.BoolLiteral(node.span, False)
        known = self.declared.get(declared.name, declared)
        if declared.name not in self.named and self.ahead:
            return nodes.OpenParameter(node.span, declared.name, form(known.default), _text(known.default))
        if declared.name not in self.named:
            return _literal(node.span, known.default)
        return _literal(node.span, self._given(declared, self.named[declared.name], node))

    def _given(self, declared: NamedParameter, text: str | None, node: nodes.Call) -> Value:
        if isinstance(declared.default, bool):
            flag = True if text is None else parse_flag(text)
            if flag is not None:
                return flag
            expected = "true or false"
        elif isinstance(declared.default, int):
            number = parse_integer(text or "")
            if number is not None:
                return number
            expected = "an integer"
        else:
            if text is not None:
                return _bytes(text)
            expected = "a value"
        given = f"--{declared.name}" + (f"={text}" if text is not None else "")
        self.diagnostics.error(f"parameter --{declared.name} needs {expected}; {given} was given", node.span)
        return declared.default


_HANDLERS: Mapping[type[nodes.Node], Callable[[_Substitution, nodes.Node], nodes.Expr]] = by_class(
    on(nodes.PositionalParam, _Substitution._positional),
    on(nodes.ParamCount, _Substitution._count),
    on(nodes.Binary, _Substitution._sum),
    on(nodes.Call, _Substitution._call),
)


def _check_named(
    program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics
) -> dict[str, NamedParameter]:
    """All declarations; reports conflicting ones, and parameters that are not declared."""
    found: dict[str, NamedParameter] = {}
    for call in _getopts(program):
        declared = _declared(call, diagnostics)
        if declared is None:
            continue
        first = found.setdefault(declared.name, declared)
        for what, same in (
            ("default", _typed(first.default) == _typed(declared.default)),
            ("description", first.description == declared.description),
        ):
            if not same:
                note = Note("declared here first", first.span)
                diagnostics.error(
                    f"parameter {declared.name!r} has another {what} elsewhere", declared.span, notes=[note]
                )
    _check_unknown(program, options, found, diagnostics)
    return found


def _check_unknown(
    program: nodes.Program, options: CompileOptions, known: dict[str, NamedParameter], diagnostics: Diagnostics
) -> None:
    for name, _ in options.named:
        if name in known or name == "help":
            continue
        near = similar(name, known)
        hints = [f"did you mean {' or '.join(f'--{item}' for item in near)}?"] if near else []
        hints.append(
            f"the script knows {', '.join(f'--{item}' for item in known)}"
            if known
            else "the script has no named parameters"
        )
        first = Span(program.span.source, 0, program.span.source.text.find("\n") % (len(program.span.source.text) + 1))
        diagnostics.error(f"unknown parameter --{name}", first, hints=hints)


def _text_parameters(node: nodes.Node) -> Iterator[nodes.PositionalParam]:
    """The parameters that a call of ``str`` takes as text: ``str($N)`` and ``str($N + skip)``."""
    if not isinstance(node, nodes.Call) or node.name != "str" or not node.args:
        return
    first = node.args[0]
    if isinstance(first, nodes.PositionalParam):
        yield first
    elif isinstance(first, nodes.Binary) and first.operator == "+":
        sides = (first.left, first.right)
        for parameter, count in (sides, sides[::-1]):
            if isinstance(parameter, nodes.PositionalParam) and isinstance(count, nodes.IntLiteral):
                yield parameter


def _getopts(program: nodes.Program) -> Iterator[nodes.Call]:
    for node in visitor.walk(program):
        if isinstance(node, nodes.Call) and node.name == "getopt":
            yield node


def _declared(call: nodes.Call, diagnostics: Diagnostics | None) -> NamedParameter | None:
    """The declaration of a ``getopt`` call; None after an error."""
    default = _constant(call.args[1]) if len(call.args) > 1 else False
    problem: tuple[str, nodes.Node] | None = None
    if not 1 <= len(call.args) <= 3:
        problem = ("getopt() takes a name, a default and a description", call)
    elif not isinstance(call.args[0], nodes.StringLiteral) or not call.args[0].value:
        problem = ("the name of a parameter must be a string literal", call.args[0])
    elif default is None:
        problem = ("the default of a parameter must be an integer, boolean or string literal", call.args[1])
    elif len(call.args) > 2 and not isinstance(call.args[2], nodes.StringLiteral):
        problem = ("the description of a parameter must be a string literal", call.args[2])
    if problem is None and default is not None:
        description = _string(call.args[2]) if len(call.args) > 2 else ""
        return NamedParameter(_string(call.args[0]), default, description, call.span)
    if problem is not None and diagnostics is not None:
        diagnostics.error(problem[0], problem[1].span)
    return None


def _constant(node: nodes.Node) -> Value | None:
    if isinstance(node, nodes.Unary) and node.operator == "-" and isinstance(node.operand, nodes.IntLiteral):
        return -node.operand.value
    return node.value if isinstance(node, nodes.IntLiteral | nodes.BoolLiteral | nodes.StringLiteral) else None


def _string(node: nodes.Node) -> str:
    return node.value.decode(errors="surrogateescape") if isinstance(node, nodes.StringLiteral) else ""


def _literal(span: Span, value: Value) -> nodes.Expr:
    if isinstance(value, bool):
        return nodes.BoolLiteral(span, value)
    return nodes.IntLiteral(span, value) if isinstance(value, int) else nodes.StringLiteral(span, value)


def form(value: Value) -> str:
    """The form of a parameter with the default *value*, as in :class:`ast.OpenParameter`."""
    return "flag" if isinstance(value, bool) else "number" if isinstance(value, int) else "text"


def _text(value: Value) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(int(value))


def _typed(value: Value) -> tuple[type, Value]:
    return (type(value), value)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _form(item: NamedParameter) -> str:
    if isinstance(item.default, bool):
        return f"--{item.name}" if item.default is False else f"--{item.name}=true|false"
    return f"--{item.name}={'N' if isinstance(item.default, int) else 'TEXT'}"


def _shown(value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value).lower() if isinstance(value, bool) else str(value)
