"""The script's ``config`` block and the environment, read into a :class:`~pytrace.core.config.Config`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import convert

from pytrace.core.config import ENVIRONMENT_PREFIXES, Config, Setting
from pytrace.core.diagnostics import Diagnostics, Note, did_you_mean, similar
from pytrace.core.source import Source, Span
from pytrace.frontend.ast import nodes
from pytrace.frontend.expand.config_keys import (
    IGNORED,
    INVERTED,
    RENAMED,
    BadValueError,
    canonical,
    key_names,
    read_value,
    unknown_variables,
    variable_names,
    variables,
)

if TYPE_CHECKING:
    from pytrace.core.options.compile_options import CompileOptions


def read(program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics) -> Config:
    """The configuration of *program*; the environment in *options* takes precedence over the script."""
    values = _from_script(program, diagnostics)
    values.update(_from_environment(options, diagnostics))
    return convert(values, Config)


def _from_script(program: nodes.Program, diagnostics: Diagnostics) -> dict[str, Setting]:
    values: dict[str, Setting] = {}
    first: dict[str, Span] = {}
    block: nodes.ConfigBlock | None = None
    for item in program.items:
        if not isinstance(item, nodes.ConfigBlock):
            continue
        if block is not None:
            note = Note("the first config block is here", block.head)
            diagnostics.error("a script has one config block", item.head, notes=[note])
            continue
        block = item
        for entry in item.entries:
            name = canonical(entry.key)
            target = RENAMED.get(name, name)
            if target in first:
                note = Note("first set here", first[target])
                diagnostics.error(f"config key {target!r} is set twice", entry.key_span, notes=[note])
                continue
            first[target] = entry.key_span
            value = entry.value.decode(errors="surrogateescape") if isinstance(entry.value, bytes) else entry.value
            _set(values, name, value, entry.key_span, entry.value_span, diagnostics)
    return values


def _from_environment(options: CompileOptions, diagnostics: Diagnostics) -> dict[str, Setting]:
    """Settings from environment variables; messages show the variable as the source line."""
    values: dict[str, Setting] = {}
    for variable in unknown_variables(options.environment):
        source = Source("environment", f"{variable}={options.environment[variable]}")
        prefix = ENVIRONMENT_PREFIXES[0]
        near = [prefix + name for name in similar(variable.removeprefix(prefix), variable_names())]
        hints = [f"did you mean {' or '.join(near)}?"] if near else []
        diagnostics.warn(f"there is no variable {variable}", Span(source, 0, len(variable)), hints=hints)
    for variable, name, text in variables(options.environment):
        source = Source("environment", f"{variable}={text}")
        column = len(variable)
        _set(values, name, text, Span(source, 0, column), Span(source, column + 1, len(source.text)), diagnostics)
    return values


def _set(
    values: dict[str, Setting], name: str, value: Setting, key_span: Span, value_span: Span, diagnostics: Diagnostics
) -> None:
    if name in IGNORED:
        diagnostics.warn(f"config key {name!r} no longer has an effect", key_span, hints=["it can be removed"])
        return
    try:
        target, setting = read_value(name, value)
    except KeyError:
        diagnostics.error(
            f"there is no config key {name!r}", key_span, hints=did_you_mean(name, [*key_names(), *RENAMED])
        )
        return
    except BadValueError as problem:
        diagnostics.error(f"config key {name!r} {problem}", value_span)
        return
    if name in RENAMED:
        opposite = " (with the opposite value)" if name in INVERTED else ""
        diagnostics.warn(f"config key {name!r} is now called {target!r}{opposite}", key_span)
    values[target] = setting
