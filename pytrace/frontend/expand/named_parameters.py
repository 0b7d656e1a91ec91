"""Named parameters as in bpftrace: ``getopt(name, default, description)`` inside code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytrace.core import numbers
from pytrace.core.diagnostics import Diagnostics, Note, did_you_mean
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Span
from pytrace.frontend.expand import c_macros, option_declarations
from pytrace.frontend.expand.option_declarations import Declarations
from pytrace.frontend.syntax import nodes

Value = bool | int | bytes


class NamedParameter(msgspec.Struct, frozen=True):
    """A named parameter as the script declares it; *default* is False for a flag."""

    name: str
    default: Value
    description: str
    span: Span


def usage(program: nodes.Program) -> list[NamedParameter]:
    """The named parameters of a script in order of their first ``getopt``, for its own ``--help``."""
    roots = {name for item in program.items for name in option_declarations.names(item)}
    parameters: dict[str, NamedParameter] = {}
    for call in _getopts(program):
        declared = parameter(call, None)
        if declared is not None and declared.name not in roots:
            kept = parameters.setdefault(declared.name, declared)
            if declared.description and not kept.description:
                parameters[declared.name] = declared
    return list(parameters.values())


def help_text(program: nodes.Program, name: str) -> str:
    """The ``--help`` text of the script *name*: one line for each named parameter."""
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
        default = "" if item.default is False else f"(default: {_shown(item.default)})"
        explained = " ".join(part for part in (item.description, default) if part)
        lines.append(f"  {text:{width}}  {explained}".rstrip() + "\n")
    return "".join(lines)


def check(
    program: nodes.Program, options: CompileOptions, roots: Declarations, diagnostics: Diagnostics
) -> dict[str, NamedParameter]:
    """All named parameters by name; reports conflicting declarations, and undeclared parameters on the command line."""
    known_parameters: dict[str, NamedParameter] = {}
    for call in _getopts(program):
        declared = parameter(call, diagnostics)
        if declared is None or _is_option(call, declared, roots, diagnostics):
            continue
        first = known_parameters.setdefault(declared.name, declared)
        for what, same in (
            ("default", _typed(first.default) == _typed(declared.default)),
            ("description", first.description == declared.description),
        ):
            if not same:
                note = Note("declared here first", first.span)
                diagnostics.error(
                    f"parameter {declared.name!r} has another {what} elsewhere", declared.span, notes=[note]
                )
    names = [name for name, _ in options.named if name not in roots.by_name]
    known = [*(item.name for item in roots.options), *known_parameters]
    _check_unknown(program, names, known, diagnostics)
    return known_parameters


def _check_unknown(
    program: nodes.Program, names: Iterable[str], known: Sequence[str], diagnostics: Diagnostics
) -> None:
    for name in names:
        if name in known or name == "help":
            continue
        hints = list(did_you_mean(name, known, "--{}"))
        hints.append(
            f"the script knows {', '.join(f'--{item}' for item in known)}"
            if known
            else "the script has no named parameters"
        )
        first = Span(program.span.source, 0, program.span.source.text.find("\n") % (len(program.span.source.text) + 1))
        diagnostics.error(f"unknown parameter --{name}", first, hints=hints)


def _is_option(call: nodes.Call, named: NamedParameter, roots: Declarations, diagnostics: Diagnostics) -> bool:
    """Whether a call refers to an option declared at the root; reports names that are similar to one."""
    declared = roots.by_name.get(named.name)
    if declared is not None:
        if len(call.args) > 1:
            note = Note("declared here", declared.span)
            diagnostics.error(
                f"the option {named.name!r} is declared at the root: give only its name here",
                call.args[1].span,
                notes=[note],
            )
        return True
    hints = did_you_mean(named.name, roots.by_name) if len(call.args) == 1 else ()
    if hints:
        diagnostics.error(f"the script declares no option {named.name!r}", call.args[0].span, hints=hints)
    return bool(hints)


def _getopts(program: nodes.Program) -> Iterator[nodes.Call]:
    for tree in (program, *c_macros.parameter_expressions(program)):
        for node in nodes.walk(tree):
            if isinstance(node, nodes.Call) and node.name == "getopt":
                yield node


def parameter(call: nodes.Call, diagnostics: Diagnostics | None) -> NamedParameter | None:
    """The parameter that a ``getopt`` call declares; None after an error."""
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


def form(value: Value) -> str:
    """The form of a parameter with the default *value*, as in :class:`ast.OpenParameter`."""
    return "flag" if isinstance(value, bool) else "number" if isinstance(value, int) else "text"


def as_text(value: Value) -> str:
    """The text form of a value."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(int(value))


def given_value(declared: NamedParameter, text: str | None, node: nodes.Call, diagnostics: Diagnostics) -> Value:
    """Convert *text* from the command line to the type of the parameter's default."""
    if isinstance(declared.default, bool):
        flag = True if text is None else numbers.parse_flag(text)
        if flag is not None:
            return flag
        expected = "true or false"
    elif isinstance(declared.default, int):
        number = numbers.parse_integer(text or "")
        if number is not None:
            return number
        expected = "an integer"
    else:
        if text is not None:
            return text.encode(errors="surrogateescape")
        expected = "a value"
    option = f"--{declared.name}" + (f"={text}" if text is not None else "")
    diagnostics.error(f"parameter --{declared.name} needs {expected}; {option} was given", node.span)
    return declared.default


def _typed(value: Value) -> tuple[type, Value]:
    return (type(value), value)


def _form(item: NamedParameter) -> str:
    if isinstance(item.default, bool):
        return f"--{item.name}" if item.default is False else f"--{item.name}=true|false"
    return f"--{item.name}={'N' if isinstance(item.default, int) else 'TEXT'}"


def _shown(value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value).lower() if isinstance(value, bool) else str(value)
