"""Parameters of a script: positional (``$1``, ``$#``), named (``getopt``), and options, replaced by their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from pytrace.base.dispatch import by_class, on
from pytrace.core import manifest, numbers
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.script_options import Value as OptionValue
from pytrace.core.source import Span
from pytrace.frontend.expand import c_macros, named_parameters, option_declarations
from pytrace.frontend.expand.named_parameters import NamedParameter, Value, form, help_lines, usage
from pytrace.frontend.syntax import nodes


def substitute(program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics) -> nodes.Program:
    """*program* with all parameters replaced by literals.

    A positional parameter becomes an integer when its text is one, else a string; ``str($N)`` is always a string.
    A missing one is 0, or the empty string, with a warning.
    """
    program = c_macros.expand_parameters(program)
    roots = option_declarations.read(program, diagnostics)
    values = option_declarations.values(roots, options.named, diagnostics)
    declared = named_parameters.check(program, options, roots, diagnostics)
    substitution = _Substitution(program, options, diagnostics, declared, values)
    result = nodes.rebuild(program, substitution.replace)
    assert isinstance(result, nodes.Program)
    return replace(result, items=tuple(x for x in result.items if not isinstance(x, nodes.OptionDeclaration)))


def describe(program: nodes.Program, options: CompileOptions) -> manifest.Parameters:
    """The parameters for the manifest of an ahead-of-time file: fixed values, and those that each run may set.

    Options that are declared at the root are fixed: attach points and types may depend on them.
    """
    program = c_macros.expand_parameters(program)
    numbers = [node.number for node in nodes.walk(program) if isinstance(node, nodes.PositionalParam)]
    known = usage(program)
    roots = option_declarations.read(program, Diagnostics())
    named = dict(options.named)
    defaults = tuple((x.name, str(x.default)) for x in roots.options if not named.keys() & set(x.names))
    return manifest.Parameters(
        options.positional,
        (*options.named, *defaults),
        tuple(item.name for item in known),
        help_lines(known),
        max(numbers, default=0),
    )


class _Substitution:
    """Replaces nodes bottom-up.

    *texts* are the parameters below the first argument of ``str``; the literals that replace them are kept in
    *literals*, so that the sum and the call around them are recognised when they are visited.
    """

    def __init__(
        self,
        program: nodes.Program,
        options: CompileOptions,
        diagnostics: Diagnostics,
        declared: dict[str, NamedParameter],
        values: Mapping[str, OptionValue],
    ) -> None:
        self.options = options
        self.diagnostics = diagnostics
        self.declared = declared
        self.values = values
        self.named = dict(options.named)
        self.ahead = options.ahead
        self.texts = {node for call in nodes.walk(program) for node in _text_parameters(call)}
        self.literals: set[nodes.Node] = set()
        self.chosen: set[nodes.Node] = set()
        """The literals of named parameters and options."""

    def replace(self, node: nodes.Node) -> nodes.Node:
        """The replacement of *node*, whose children have been replaced."""
        handler = _HANDLERS.get(type(node))
        return handler(self, node) if handler is not None else node

    def _positional(self, node: nodes.PositionalParam) -> nodes.Expr:
        text = self._value(node)
        if text is None and self.ahead:
            return self._open(node)
        if node in self.texts:
            return self._literal(node.span, _bytes(text or ""))
        if text is None:
            count = len(self.options.positional)
            self.diagnostics.warn(
                f"parameter ${node.number} was not given; it is 0",
                node.span,
                hints=[f"the script was started with {count} parameter{'' if count == 1 else 's'}"],
            )
            return nodes.IntLiteral(node.span, 0)
        number = numbers.parse_integer(text)
        return nodes.StringLiteral(node.span, _bytes(text)) if number is None else nodes.IntLiteral(node.span, number)

    def _open(self, node: nodes.PositionalParam) -> nodes.Expr:
        """A parameter that each run of the ahead-of-time file sets: a number, or text inside ``str``."""
        if node not in self.texts:
            return nodes.OpenParameter(node.span, str(node.number), "number", "0")
        parameter = nodes.OpenParameter(node.span, str(node.number), "text")
        self.literals.add(parameter)
        return parameter

    def _count(self, node: nodes.ParamCount) -> nodes.Expr:
        if self.ahead:
            return nodes.OpenParameter(node.span, "#", "number", str(len(self.options.positional)))
        return nodes.IntLiteral(node.span, len(self.options.positional))

    def _value(self, node: nodes.PositionalParam) -> str | None:
        known = self.options.positional
        return known[node.number - 1] if node.number <= len(known) else None

    def _literal(self, span: Span, text: bytes) -> nodes.StringLiteral:
        literal = nodes.StringLiteral(span, text)
        self.literals.add(literal)
        return literal

    def _sum(self, node: nodes.Binary) -> nodes.Expr:
        """``$N + skip`` inside ``str``: skips the first characters of the text."""
        for text, count in ((node.left, node.right), (node.right, node.left)):
            if text in self.literals and isinstance(text, nodes.StringLiteral) and isinstance(count, nodes.IntLiteral):
                if count.value > len(text.value):
                    message = f"the parameter has {len(text.value)} characters; nothing is left after {count.value}"
                    self.diagnostics.warn(message, count.span)
                return self._literal(node.span, text.value[count.value :])
            if text in self.literals and isinstance(text, nodes.OpenParameter) and isinstance(count, nodes.IntLiteral):
                parameter = replace(text, span=node.span, skip=count.value)
                self.literals.add(parameter)
                return parameter
        return node

    def _call(self, node: nodes.Call) -> nodes.Expr:
        if node.name == "getopt":
            return self._getopt(node)
        if node.name == "probe_exist" and self.values and len(node.args) == 1:
            return self._question(node, node.args[0])
        first = node.args[0] if node.name == "str" and len(node.args) == 1 else None
        if isinstance(first, nodes.StringLiteral | nodes.OpenParameter) and first in self.literals:
            return first
        return node

    def _question(self, node: nodes.Call, asked: nodes.Node) -> nodes.Expr:
        """``probe_exist("…$name…")`` with the values of options, as in attach points."""
        if not isinstance(asked, nodes.StringLiteral) or b"$" not in asked.value:
            return node
        text = asked.value
        for name in sorted(self.values, key=len, reverse=True):
            text = text.replace(_bytes(f"${name}"), _bytes(named_parameters.as_text(_plain(self.values[name]))))
        return replace(node, args=(nodes.StringLiteral(asked.span, text),))

    def _getopt(self, node: nodes.Call) -> nodes.Expr:
        declared = named_parameters.parameter(node, None)
        if declared is None:
            return nodes.BoolLiteral(node.span, False)
        if declared.name in self.values:
            return self._chosen(node.span, self.values[declared.name])
        known = self.declared.get(declared.name, declared)
        if declared.name not in self.named and self.ahead:
            default = named_parameters.as_text(known.default)
            return nodes.OpenParameter(node.span, declared.name, form(known.default), default)
        if declared.name not in self.named:
            return self._chosen(node.span, known.default)
        text = self.named[declared.name]
        return self._chosen(node.span, named_parameters.given_value(declared, text, node, self.diagnostics))

    def _chosen(self, span: Span, value: OptionValue | bytes) -> nodes.Expr:
        """The literal of a named parameter or option."""
        literal = _literal(span, _plain(value) if isinstance(value, str) else value)
        self.chosen.add(literal)
        return literal

    def _probe(self, node: nodes.Probe) -> nodes.Node:
        """A probe; if named parameters or options disable it, its body is kept for type inference."""
        predicate = node.predicate
        if predicate is None or not nodes.is_false_literal(predicate):
            return node
        return replace(node, off=any(item in self.chosen for item in nodes.walk(predicate)))

    def _attach_point(self, node: nodes.AttachPoint) -> nodes.Node:
        """An attach point with the texts of options that it may contain."""
        if "$" not in node.text or not self.values:
            return node
        texts = tuple((name, named_parameters.as_text(_plain(value))) for name, value in self.values.items())
        return replace(node, options=texts)


_HANDLERS: Mapping[type[nodes.Node], Callable[[_Substitution, nodes.Node], nodes.Node]] = by_class(
    on(nodes.PositionalParam, _Substitution._positional),
    on(nodes.ParamCount, _Substitution._count),
    on(nodes.Binary, _Substitution._sum),
    on(nodes.Call, _Substitution._call),
    on(nodes.Probe, _Substitution._probe),
    on(nodes.AttachPoint, _Substitution._attach_point),
)


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

def _literal(span: Span, value: Value) -> nodes.Expr:
    if isinstance(value, bool):
        return nodes.BoolLiteral(span, value)
    return nodes.IntLiteral(span, value) if isinstance(value, int) else nodes.StringLiteral(span, value)


def _plain(value: OptionValue) -> Value:
    return _bytes(value) if isinstance(value, str) else value


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
