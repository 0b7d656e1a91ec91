"""Parameters of a script: positional (``$1``, ``$#``), named (``getopt``), and options, replaced by their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from pytrace.base.dispatch import handlers, handles
from pytrace.core import manifest, script_options
from pytrace.core.diagnostics import Diagnostics, Note, did_you_mean
from pytrace.core.options import CompileOptions
from pytrace.core.script_options import TYPES, ScriptOption, WrongValueError, convert, entries
from pytrace.core.script_options import Value as OptionValue
from pytrace.core.script_options import default as default_value
from pytrace.core.source import Source, Span
from pytrace.core.text import parse_flag, parse_integer
from pytrace.frontend.expand import c_definitions, imports
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.nodes import Node, literal_truth

# ----------------------------------------------------------------------------------------------------- declared options

# Options that a script declares at its root: `getopt("n|name=NAME", "", "help");`.


_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_TYPE = r"(?::(?P<type>[a-z]+|-?[0-9]+\.\.(?:-?[0-9]+)?))?(?P<listed>,\.\.\.)?"
_SPEC = rf"(?P<names>{_NAME}(?:\|{_NAME})*)(?:=(?P<argument>[^\s=|.:\[\]<>]+?)(?P<repeat>\.\.\.)?{_TYPE})?"
_OPERAND = rf"(?P<open>[\[<])(?P<name>(?:--)?{_NAME})(?P<repeat>\.\.\.)?{_TYPE}(?P<close>[\]>])"
_SPEC_HINT = (
    'an option is written "x|name" (a flag) or "x|name=ARGUMENT", an operand "[name]" or "<name>"; '
    '"..." after the name or ARGUMENT takes several, ":TYPE" after it says what it takes, ",..." takes a list'
)

NUMBERS = ("seconds", "interval", "pid", "port", "cpu", "netns", "errno", "signal")
"""Types whose single values are integers; ranges are, too."""


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


def declared_by(source: Source, diagnostics: Diagnostics) -> tuple[tuple[ScriptOption, ...], bool, list[str]]:
    """The options of a script and its imports, whether it has positional parameters, and the paths of the imports."""
    program, paths = imports.scripts(parser.parse(source, diagnostics))
    options = read_declarations(program, diagnostics).options
    positional = any(
        isinstance(node, nodes.PositionalParam | nodes.ParamCount)
        or (isinstance(node, nodes.AttachPoint) and re.search(r"\$[0-9]", node.text) is not None)
        for node in nodes.walk(program)
    )
    return options, positional, paths


def read_declarations(program: nodes.Program, diagnostics: Diagnostics) -> Declarations:
    """The valid declarations of *program*; reports errors in the others."""
    items: list[Declaration] = []
    by_name: dict[str, Declaration] = {}
    for node in _declarations_in_order(program):
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


def declared_names(item: nodes.RootItem) -> tuple[str, ...]:
    """The option names that a root item declares; none for other items and invalid declarations."""
    if not isinstance(item, nodes.OptionDeclaration):
        return ()
    try:
        return _option(item).names
    except _MistakeError:
        return ()


def _declarations_in_order(program: nodes.Program) -> list[nodes.OptionDeclaration]:
    declarations = [item for item in program.items if isinstance(item, nodes.OptionDeclaration)]
    return sorted(declarations, key=lambda item: item.span.source is not program.span.source)


# ---------------------------------------------------------------------------------------------- one declaration


def _option(node: nodes.OptionDeclaration) -> ScriptOption:
    if len(node.args) > 4:
        raise _MistakeError("getopt() takes names, a default, a help text and choices", node.args[4].span)
    spec = node.args[0]
    text = _option_text(spec)
    if text is None:
        raise _MistakeError("the names of an option must be a string literal", spec.span, _SPEC_HINT)
    default = _default(node.args[1]) if len(node.args) > 1 else None
    help_text = _option_text(node.args[2]) if len(node.args) > 2 else ""
    if help_text is None:
        raise _MistakeError("the help text of an option must be a string literal", node.args[2].span)
    choices = _choices(node.args[3]) if len(node.args) > 3 else ()
    operand = re.fullmatch(_OPERAND, text)
    if operand is not None and operand["open"] + operand["close"] in ("[]", "<>"):
        option = _operand(operand, default, help_text, choices)
    else:
        option = _named_option(spec, text, default, help_text, choices)
    _check_option(option, node)
    return option


def _operand(
    match: re.Match[str], default: OptionValue | None, help_text: str, choices: tuple[str, ...]
) -> ScriptOption:
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


def _named_option(
    spec: nodes.Node, text: str, default: OptionValue | None, help_text: str, choices: tuple[str, ...]
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


def _check_option(option: ScriptOption, node: nodes.OptionDeclaration) -> None:
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


def is_number(name: str) -> bool:
    """Whether single values of a type are integers."""
    return name in NUMBERS or name not in TYPES


def _check_type(option: ScriptOption, name: Span, default: Span) -> None:
    if script_options.find_type(option.type) is None:
        known = ", ".join(script_options.TYPES)
        hints = did_you_mean(option.type, script_options.TYPES)
        raise _MistakeError(
            f"there is no type {option.type!r} of options", name, *hints, f"types are {known}, and ranges: 0.., 1..64"
        )
    if option.choices:
        raise _MistakeError("an option has choices or a type, not both", name)
    number = is_number(option.type) and not option.listed and not option.repeat
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


def _option_text(node: nodes.Node) -> str | None:
    return node.value.decode(errors="surrogateescape") if isinstance(node, nodes.StringLiteral) else None


def _default(node: nodes.Node) -> OptionValue:
    if isinstance(node, nodes.Unary) and node.operator == "-" and isinstance(node.operand, nodes.IntLiteral):
        return -node.operand.value
    if isinstance(node, nodes.IntLiteral | nodes.BoolLiteral):
        return node.value
    text = _option_text(node)
    if text is None:
        raise _MistakeError("the default of an option must be an integer, boolean or string literal", node.span)
    return text


def _choices(node: nodes.Node) -> tuple[str, ...]:
    members = node.members if isinstance(node, nodes.TupleLiteral) else (node,)
    texts = []
    for member in members:
        text = _option_text(member)
        if not text:
            raise _MistakeError("a choice must be a string literal that is not empty", member.span)
        texts.append(text)
    return tuple(texts)


# ---------------------------------------------------------------------------------------------- values


def declared_values(
    declared: Declarations, written: Iterable[tuple[str, str | None]], diagnostics: Diagnostics
) -> dict[str, OptionValue]:
    """The values of all declared options by name; values *written* on the command line override the defaults.

    Wrong values and required operands without a value are reported at their declarations.
    """
    texts = {declared.by_name[name].option.name: text for name, text in written if name in declared.by_name}
    values_: dict[str, OptionValue] = {}
    for item in declared.items:
        option = item.option
        value = default_value(option)
        if option.name in texts:
            value = _convert(item, texts[option.name], diagnostics)
        elif option.required:
            diagnostics.error(f"the operand {option.name!r} must be given", item.span)
        values_.update(dict.fromkeys(option.names, value))
    return values_


def named_paths(program: nodes.Program, options: CompileOptions) -> list[str]:
    """The paths that values on the command line name, and that these values depend on."""
    if not options.named:
        return []
    by_name = read_declarations(program, Diagnostics()).by_name
    given = ((by_name[name].option, text) for name, text in options.named if name in by_name and text is not None)
    places = ((option, text, TYPES[option.type].place) for option, text in given if option.type in TYPES)
    return [place(entry) for option, text, place in places if place is not None for entry in entries(option, text)]


def _convert(item: Declaration, text: str | None, diagnostics: Diagnostics) -> OptionValue:
    try:
        return convert(item.option, text)
    except WrongValueError as wrong:
        what = "operand" if item.option.operand else "option"
        shown = f"{wrong}, not nothing" if text is None else wrong.shown(text)
        diagnostics.error(f"{what} {item.option.name} needs {shown}", item.span, hints=wrong.hints)
        return default_value(item.option)


# ----------------------------------------------------------------------------------------------------- named parameters

# Named parameters as in bpftrace: `getopt(name, default, description)` inside code.


Value = bool | int | bytes


class NamedParameter(msgspec.Struct, frozen=True):
    """A named parameter as the script declares it; *default* is False for a flag."""

    name: str
    default: Value
    description: str
    span: Span


def used_parameters(program: nodes.Program) -> list[NamedParameter]:
    """The named parameters of a script in order of their first ``getopt``, for its own ``--help``."""
    roots = {name for item in program.items for name in declared_names(item)}
    parameters: dict[str, NamedParameter] = {}
    for call in _getopts(program):
        declared = _named_parameter(call, None)
        if declared is not None and declared.name not in roots:
            kept = parameters.setdefault(declared.name, declared)
            if declared.description and not kept.description:
                parameters[declared.name] = declared
    return list(parameters.values())


def help_text(program: nodes.Program, name: str) -> str:
    """The ``--help`` text of the script *name*: one line for each named parameter."""
    known = used_parameters(program)
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


def _check_calls(
    program: nodes.Program, options: CompileOptions, roots: Declarations, diagnostics: Diagnostics
) -> dict[str, NamedParameter]:
    """All named parameters by name; reports conflicting declarations, and undeclared parameters on the command line."""
    known_parameters: dict[str, NamedParameter] = {}
    for call in _getopts(program):
        declared = _named_parameter(call, diagnostics)
        if declared is None or _is_option(call, declared, roots, diagnostics):
            continue
        first = known_parameters.setdefault(declared.name, declared)
        for what, same in (
            ("default", _type_and_value(first.default) == _type_and_value(declared.default)),
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
    for tree in (program, *c_definitions.parameter_expressions(program)):
        for node in nodes.walk(tree):
            if isinstance(node, nodes.Call) and node.name == "getopt":
                yield node


def _named_parameter(call: nodes.Call, diagnostics: Diagnostics | None) -> NamedParameter | None:
    """The parameter that a ``getopt`` call declares; None after an error."""
    default = _constant_value(call.args[1]) if len(call.args) > 1 else False
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


def _constant_value(node: nodes.Node) -> Value | None:
    if isinstance(node, nodes.Unary) and node.operator == "-" and isinstance(node.operand, nodes.IntLiteral):
        return -node.operand.value
    return node.value if isinstance(node, nodes.IntLiteral | nodes.BoolLiteral | nodes.StringLiteral) else None


def _string(node: nodes.Node) -> str:
    return node.value.decode(errors="surrogateescape") if isinstance(node, nodes.StringLiteral) else ""


def form(value: Value) -> str:
    """The form of a parameter with the default *value*, as in :class:`ast.OpenParameter`."""
    return "flag" if isinstance(value, bool) else "number" if isinstance(value, int) else "text"


def _as_text(value: Value) -> str:
    """The text form of a value."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(int(value))


def _given_value(declared: NamedParameter, text: str | None, node: nodes.Call, diagnostics: Diagnostics) -> Value:
    """Convert *text* from the command line to the type of the parameter's default."""
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
            return text.encode(errors="surrogateescape")
        expected = "a value"
    option = f"--{declared.name}" + (f"={text}" if text is not None else "")
    diagnostics.error(f"parameter --{declared.name} needs {expected}; {option} was given", node.span)
    return declared.default


def _type_and_value(value: Value) -> tuple[type, Value]:
    return (type(value), value)


def _form(item: NamedParameter) -> str:
    if isinstance(item.default, bool):
        return f"--{item.name}" if item.default is False else f"--{item.name}=true|false"
    return f"--{item.name}={'N' if isinstance(item.default, int) else 'TEXT'}"


def _shown(value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value).lower() if isinstance(value, bool) else str(value)


# ------------------------------------------------------------------------------------------------------------- the pass


def substitute(program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics) -> nodes.Program:
    """*program* with all parameters replaced by literals.

    A positional parameter becomes an integer when its text is one, else a string; ``str($N)`` is always a string.
    A missing one is 0, or the empty string, with a warning.
    """
    if program.c_parts:
        program = c_definitions.expand_parameters(program)
    elif not options.named and not any(map(_is_parameter, nodes.walk(program))):
        return program
    roots = read_declarations(program, diagnostics)
    values = declared_values(roots, options.named, diagnostics)
    declared = _check_calls(program, options, roots, diagnostics)
    substitution = _Substitution(program, options, diagnostics, declared, values)
    result = nodes.rebuild(program, substitution.replace)
    assert isinstance(result, nodes.Program)
    return replace(result, items=tuple(x for x in result.items if not isinstance(x, nodes.OptionDeclaration)))


def _is_parameter(node: nodes.Node) -> bool:
    """Whether a node is a parameter or declares one; other nodes change only beside these."""
    if isinstance(node, nodes.Call):
        return node.name == "getopt"
    return isinstance(node, nodes.PositionalParam | nodes.ParamCount | nodes.OptionDeclaration)


def describe(program: nodes.Program, options: CompileOptions) -> manifest.Parameters:
    """The parameters for the manifest of an ahead-of-time file: fixed values, and those that each run may set.

    Options that are declared at the root are fixed: attach points and types may depend on them.
    """
    program = c_definitions.expand_parameters(program)
    numbers = [node.number for node in nodes.walk(program) if isinstance(node, nodes.PositionalParam)]
    known = used_parameters(program)
    roots = read_declarations(program, Diagnostics())
    named = dict(options.named)
    defaults = tuple((x.name, str(x.default)) for x in roots.options if not named.keys() & set(x.names))
    return manifest.Parameters(
        options.positional,
        (*options.named, *defaults),
        tuple(item.name for item in known),
        help_lines(known),
        max(numbers, default=0),
    )


def is_false_literal(node: Node | None) -> bool:
    """Whether the value of *node* is known and false."""
    return literal_truth(node) is False


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
        self._rules: Mapping[type[nodes.Node], Callable[[nodes.Node], nodes.Node]] = handlers(self)
        self.named = dict(options.named)
        self.ahead = options.ahead
        self.texts = {node for call in nodes.walk(program) for node in _text_parameters(call)}
        self.literals: set[nodes.Node] = set()
        self.chosen: set[nodes.Node] = set()
        """The literals of named parameters and options."""

    def replace(self, node: nodes.Node) -> nodes.Node:
        """The replacement of *node*, whose children have been replaced."""
        rule = self._rules.get(type(node))
        return rule(node) if rule is not None else node

    @handles(nodes.PositionalParam)
    def _positional(self, node: nodes.PositionalParam) -> nodes.Expr:
        text = self._positional_text(node)
        if text is None and self.ahead:
            return self._open_parameter(node)
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
        number = parse_integer(text)
        return nodes.StringLiteral(node.span, _bytes(text)) if number is None else nodes.IntLiteral(node.span, number)

    def _open_parameter(self, node: nodes.PositionalParam) -> nodes.Expr:
        """A parameter that each run of the ahead-of-time file sets: a number, or text inside ``str``."""
        if node not in self.texts:
            return nodes.OpenParameter(node.span, str(node.number), "number", "0")
        parameter = nodes.OpenParameter(node.span, str(node.number), "text")
        self.literals.add(parameter)
        return parameter

    @handles(nodes.ParamCount)
    def _parameter_count(self, node: nodes.ParamCount) -> nodes.Expr:
        if self.ahead:
            return nodes.OpenParameter(node.span, "#", "number", str(len(self.options.positional)))
        return nodes.IntLiteral(node.span, len(self.options.positional))

    def _positional_text(self, node: nodes.PositionalParam) -> str | None:
        known = self.options.positional
        return known[node.number - 1] if node.number <= len(known) else None

    def _literal(self, span: Span, text: bytes) -> nodes.StringLiteral:
        literal = nodes.StringLiteral(span, text)
        self.literals.add(literal)
        return literal

    @handles(nodes.Binary)
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

    @handles(nodes.Call)
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
            text = text.replace(_bytes(f"${name}"), _bytes(_as_text(_plain_value(self.values[name]))))
        return replace(node, args=(nodes.StringLiteral(asked.span, text),))

    def _getopt(self, node: nodes.Call) -> nodes.Expr:
        declared = _named_parameter(node, None)
        if declared is None:
            return nodes.BoolLiteral(node.span, False)
        if declared.name in self.values:
            return self._literal_of(node.span, self.values[declared.name])
        known = self.declared.get(declared.name, declared)
        if declared.name not in self.named and self.ahead:
            default = _as_text(known.default)
            return nodes.OpenParameter(node.span, declared.name, form(known.default), default)
        if declared.name not in self.named:
            return self._literal_of(node.span, known.default)
        text = self.named[declared.name]
        return self._literal_of(node.span, _given_value(declared, text, node, self.diagnostics))

    def _literal_of(self, span: Span, value: OptionValue | bytes) -> nodes.Expr:
        """The literal of a named parameter or option."""
        literal = _literal(span, _plain_value(value) if isinstance(value, str) else value)
        self.chosen.add(literal)
        return literal

    @handles(nodes.Probe)
    def _probe(self, node: nodes.Probe) -> nodes.Node:
        """A probe; if named parameters or options disable it, its body is kept for type inference."""
        predicate = node.predicate
        if predicate is None or not is_false_literal(predicate):
            return node
        return replace(node, off=any(item in self.chosen for item in nodes.walk(predicate)))

    @handles(nodes.AttachPoint)
    def _attach_point(self, node: nodes.AttachPoint) -> nodes.Node:
        """An attach point with the texts of options that it may contain."""
        if "$" not in node.text or not self.values:
            return node
        texts = tuple((name, _as_text(_plain_value(value))) for name, value in self.values.items())
        return replace(node, options=texts)


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


def _plain_value(value: OptionValue) -> Value:
    return _bytes(value) if isinstance(value, str) else value


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
