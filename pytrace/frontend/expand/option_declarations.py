"""Options that a script declares at its root: ``getopt("n|name=NAME", "", "help");``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pytrace.core.diagnostics import Diagnostics, Note, did_you_mean
from pytrace.core.options import option_types
from pytrace.core.options.option_values import WrongValueError, convert, entries
from pytrace.core.options.option_values import default as default_value
from pytrace.core.options.script_options import ScriptOption, Value
from pytrace.core.source import Span
from pytrace.frontend.syntax import nodes

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_TYPE = r"(?::(?P<type>[a-z]+|-?[0-9]+\.\.(?:-?[0-9]+)?))?(?P<listed>,\.\.\.)?"
_SPEC = rf"(?P<names>{_NAME}(?:\|{_NAME})*)(?:=(?P<argument>[^\s=|.:\[\]<>]+?)(?P<repeat>\.\.\.)?{_TYPE})?"
_OPERAND = rf"(?P<open>[\[<])(?P<name>(?:--)?{_NAME})(?P<repeat>\.\.\.)?{_TYPE}(?P<close>[\]>])"
_SPEC_HINT = (
    'an option is written "x|name" (a flag) or "x|name=ARGUMENT", an operand "[name]" or "<name>"; '
    '"..." after the name or ARGUMENT takes several, ":TYPE" after it says what it takes, ",..." takes a list'
)


class Declaration(msgspec.Struct, frozen=True):
    """An option and its declaration."""

    option: ScriptOption
    span: Span


class Declarations(msgspec.Struct, frozen=True):
    """All options that a script declares, its own before those of what it imports."""

    items: tuple[Declaration, ...] = ()
    by_name: Mapping[str, Declaration] = msgspec.field(default_factory=dict)

    @property
    def options(self) -> tuple[ScriptOption, ...]:
        """The options themselves."""
        return tuple(item.option for item in self.items)


class _MistakeError(Exception):
    """An invalid declaration: message, span, hints."""

    def __init__(self, message: str, span: Span, *hints: str) -> None:
        super().__init__(message)
        self.message, self.span, self.hints = message, span, hints


def read(program: nodes.Program, diagnostics: Diagnostics) -> Declarations:
    """The valid declarations of *program*; reports errors in the others."""
    items: list[Declaration] = []
    by_name: dict[str, Declaration] = {}
    for node in _own_first(program):
        try:
            declaration = Declaration(_option(node), node.span)
            _check_order(declaration, items)
        except _MistakeError as mistake:
            diagnostics.error(mistake.message, mistake.span, hints=mistake.hints)
            continue
        taken = next((name for name in declaration.option.names if name in by_name), None)
        if taken is not None:
            note = Note("declared here first", by_name[taken].span)
            diagnostics.error(f"the option {taken!r} is declared twice", node.args[0].span, notes=[note])
            continue
        items.append(declaration)
        by_name.update(dict.fromkeys(declaration.option.names, declaration))
    return Declarations(tuple(items), by_name)


def names(item: nodes.RootItem) -> tuple[str, ...]:
    """The option names that a root item declares; none for other items and invalid declarations."""
    if not isinstance(item, nodes.OptionDeclaration):
        return ()
    try:
        return _option(item).names
    except _MistakeError:
        return ()


def _own_first(program: nodes.Program) -> list[nodes.OptionDeclaration]:
    declarations = [item for item in program.items if isinstance(item, nodes.OptionDeclaration)]
    return sorted(declarations, key=lambda item: item.span.source is not program.span.source)


# ---------------------------------------------------------------------------------------------- one declaration


def _option(node: nodes.OptionDeclaration) -> ScriptOption:
    if len(node.args) > 4:
        raise _MistakeError("getopt() takes names, a default, a help text and choices", node.args[4].span)
    spec = node.args[0]
    text = _text(spec)
    if text is None:
        raise _MistakeError("the names of an option must be a string literal", spec.span, _SPEC_HINT)
    default = _default(node.args[1]) if len(node.args) > 1 else None
    help_text = _text(node.args[2]) if len(node.args) > 2 else ""
    if help_text is None:
        raise _MistakeError("the help text of an option must be a string literal", node.args[2].span)
    choices = _choices(node.args[3]) if len(node.args) > 3 else ()
    operand = re.fullmatch(_OPERAND, text)
    if operand is not None and operand["open"] + operand["close"] in ("[]", "<>"):
        option = _operand(operand, default, help_text, choices)
    else:
        option = _named(spec, text, default, help_text, choices)
    _check(option, node)
    return option


def _operand(match: re.Match[str], default: Value | None, help_text: str, choices: tuple[str, ...]) -> ScriptOption:
    name = match["name"]
    return ScriptOption(
        (name,),
        "" if default is None else default,
        help_text,
        name,
        choices,
        operand=True,
        required=match["open"] == "<",
        repeat=match["repeat"] is not None,
        type=match["type"] or "",
        listed=match["listed"] is not None,
    )


def _named(
    spec: nodes.Node, text: str, default: Value | None, help_text: str, choices: tuple[str, ...]
) -> ScriptOption:
    match = re.fullmatch(_SPEC, text)
    if match is None:
        raise _MistakeError(f"{text!r} does not declare an option", spec.span, _SPEC_HINT)
    names = tuple(match["names"].split("|"))
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise _MistakeError(f"the name {twice!r} appears twice", spec.span)
    if "help" in names:
        raise _MistakeError("--help is taken: it prints the usage of the script", spec.span)
    if default is None:
        default = "" if match["argument"] else False
    argument = match["argument"] or ""
    if isinstance(default, bool):
        if argument:
            raise _MistakeError(
                f"the default of an option with the argument {argument} must be an integer or a text", spec.span
            )
    elif not argument:
        argument = "N" if isinstance(default, int) else "TEXT"
    return ScriptOption(
        names,
        default,
        help_text,
        argument,
        choices,
        repeat=match["repeat"] is not None,
        type=match["type"] or "",
        listed=match["listed"] is not None,
    )


def _check(option: ScriptOption, node: nodes.OptionDeclaration) -> None:
    place = node.args[1].span if len(node.args) > 1 else node.args[0].span
    if option.operand and isinstance(option.default, bool):
        raise _MistakeError("the default of an operand must be an integer or a text", place)
    if (option.repeat or option.listed) and not option.type and not isinstance(option.default, str):
        raise _MistakeError("the default of an option that takes several values must be a text", place)
    if option.type:
        _check_type(option, node.args[0].span, place)
    if not option.choices:
        return
    if not isinstance(option.default, str):
        raise _MistakeError("an option with choices must have a text as default", place)
    wrong = next((item for item in entries(option, option.default) if item not in option.choices), "")
    if option.default and wrong:
        hints = did_you_mean(wrong, option.choices)
        raise _MistakeError(
            f"the default {wrong!r} is not among the choices {', '.join(option.choices)}", place, *hints
        )


def _check_type(option: ScriptOption, name: Span, default: Span) -> None:
    if option_types.find(option.type) is None:
        known = ", ".join(option_types.TYPES)
        hints = did_you_mean(option.type, option_types.TYPES)
        raise _MistakeError(
            f"there is no type {option.type!r} of options", name, *hints, f"types are {known}, and ranges: 0.., 1..64"
        )
    if option.choices:
        raise _MistakeError("an option has choices or a type, not both", name)
    number = option_types.is_number(option.type) and not option.listed and not option.repeat
    if isinstance(option.default, bool) or isinstance(option.default, int) != number:
        needed = "an integer" if number else "a text"
        raise _MistakeError(f"the default of an option of the type {option.type!r} must be {needed}", default)


def _check_order(declaration: Declaration, before: Sequence[Declaration]) -> None:
    option = declaration.option
    last = next((item.option for item in reversed(before) if item.option.operand), None)
    if not option.operand or last is None:
        return
    if last.repeat:
        raise _MistakeError(f"no operand can follow {last.name!r}, which takes all that follow", declaration.span)
    if option.required and not last.required:
        raise _MistakeError(
            f"the required operand {option.name!r} cannot follow the optional one {last.name!r}", declaration.span
        )


def _text(node: nodes.Node) -> str | None:
    return node.value.decode(errors="surrogateescape") if isinstance(node, nodes.StringLiteral) else None


def _default(node: nodes.Node) -> Value:
    if isinstance(node, nodes.Unary) and node.operator == "-" and isinstance(node.operand, nodes.IntLiteral):
        return -node.operand.value
    if isinstance(node, nodes.IntLiteral | nodes.BoolLiteral):
        return node.value
    text = _text(node)
    if text is None:
        raise _MistakeError("the default of an option must be an integer, boolean or string literal", node.span)
    return text


def _choices(node: nodes.Node) -> tuple[str, ...]:
    members = node.members if isinstance(node, nodes.TupleLiteral) else (node,)
    texts = []
    for member in members:
        text = _text(member)
        if not text:
            raise _MistakeError("a choice must be a string literal that is not empty", member.span)
        texts.append(text)
    return tuple(texts)


# ---------------------------------------------------------------------------------------------- values


def values(
    declared: Declarations, written: Iterable[tuple[str, str | None]], diagnostics: Diagnostics
) -> dict[str, Value]:
    """The values of all declared options by name; values *written* on the command line override the defaults.

    Wrong values and required operands without a value are reported at their declarations.
    """
    texts = {declared.by_name[name].option.name: text for name, text in written if name in declared.by_name}
    values_: dict[str, Value] = {}
    for item in declared.items:
        option = item.option
        value = default_value(option)
        if option.name in texts:
            value = _converted(item, texts[option.name], diagnostics)
        elif option.required:
            diagnostics.error(f"the operand {option.name!r} must be given", item.span)
        values_.update(dict.fromkeys(option.names, value))
    return values_


def _converted(item: Declaration, text: str | None, diagnostics: Diagnostics) -> Value:
    try:
        return convert(item.option, text)
    except WrongValueError as wrong:
        what = "operand" if item.option.operand else "option"
        shown = f"{wrong}, not nothing" if text is None else wrong.shown(text)
        diagnostics.error(f"{what} {item.option.name} needs {shown}", item.span, hints=wrong.hints)
        return default_value(item.option)
