"""The script's ``config`` block and the environment, read into a :class:`~pytrace.core.options.Config`.

A value comes from the environment (``PYTRACE_KEY``, else ``BPFTRACE_KEY``), from the script's ``config`` block, or is
the default, in this order. :data:`KEYS` is the table of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import convert

from pytrace.core.diagnostics import Diagnostics, Note, did_you_mean, either
from pytrace.core.options import ENVIRONMENT_PREFIXES, CompileOptions, Config, parse_memory
from pytrace.core.source import Source, Span
from pytrace.core.text import parse_integer
from pytrace.core.types import DEEPEST_STACK
from pytrace.frontend.syntax import nodes

Setting = bool | int | str
"""The value of a key."""

_BOOLEANS = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}


def read(program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics) -> Config:
    """The configuration of *program*; the environment in *options* takes precedence over the script."""
    values = _from_script(program, diagnostics)
    if options.environment:
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
    for variable in _unknown_variables(options.environment):
        source = Source("environment", f"{variable}={options.environment[variable]}")
        prefix = ENVIRONMENT_PREFIXES[0]
        hints = did_you_mean(variable.removeprefix(prefix), _variable_names(), f"{prefix}{{}}")
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


# ---------------------------------------------------------------------------------------------- configuration keys

_LICENSES = (
    "GPL",
    "GPL v2",
    "GPL and additional rights",
    "Dual BSD/GPL",
    "Dual MIT/GPL",
    "Dual MPL/GPL",
)
"""Licences that the kernel accepts for programs that call GPL-only helpers (include/linux/license.h)."""

_MAX_STRING = 65536
"""Largest string or buffer."""


class BadValueError(ValueError):
    """A value that a key does not accept; the message says what it accepts."""


def parse_boolean(text: str) -> bool | None:
    """The boolean that *text* denotes (true/false, 1/0, on/off, yes/no in any case), or None."""
    return _BOOLEANS.get(text.lower())


def _boolean(value: Setting) -> bool:
    if isinstance(value, bool):
        return value
    boolean = parse_boolean(str(value))
    if boolean is None:
        raise BadValueError("expects true or false (also 1/0, on/off, yes/no)")
    return boolean


def _integer(low: int, high: int) -> Callable[[Setting], int]:
    def read(value: Setting) -> int:
        number = parse_integer(value) if isinstance(value, str) else None if isinstance(value, bool) else value
        if number is None:
            raise BadValueError("expects an integer")
        if not low <= number <= high:
            raise BadValueError(f"expects an integer of {low} to {high}")
        return number

    return read


def _choice(*allowed: str) -> Callable[[Setting], str]:
    known = {item.lower(): item for item in allowed}

    def read(value: Setting) -> str:
        choice = known.get(str(value).lower()) if not isinstance(value, bool) else None
        if choice is None:
            raise BadValueError(f"expects {either(allowed)}")
        return choice

    return read


def _license(value: Setting) -> str:
    if value not in _LICENSES:
        raise BadValueError(f"expects a licence that the kernel takes as compatible with the GPL: {either(_LICENSES)}")
    return str(value)


def _text(value: Setting) -> str:
    if not isinstance(value, str):
        raise BadValueError("expects a string")
    return value


def _memory(value: Setting) -> str:
    try:
        parse_memory(str(value), 1 << 40)
    except ValueError:
        raise BadValueError("expects an amount of memory: 512M, 2G, 10%") from None
    return str(value)


def _symbol_cache(value: Setting) -> str:
    named = {"1": "AUTO", "true": "AUTO", "0": "NONE", "false": "NONE"}.get(str(value).lower())
    if named is not None:
        return named
    return _choice("PER_PID", "PER_PROGRAM", "NONE")(value)


def _unstable(value: Setting) -> str:
    if isinstance(value, bool) or str(value).lower() not in ("enable", "warn", "error"):
        try:
            return "enable" if _boolean(value) else "error"
        except BadValueError:
            raise BadValueError("expects enable, warn or error") from None
    return str(value).lower()


class Key(msgspec.Struct, frozen=True):
    """One row: how a key's values are parsed, and the key's documentation."""

    name: str
    read: Callable[[Setting], Setting]
    doc: str


_SIZE = _integer(0, 2**31 - 1)
_COUNT = _integer(1, 2**31 - 1)

KEYS: tuple[Key, ...] = (
    Key("cache_user_symbols", _symbol_cache, "how symbols of user processes are cached: PER_PID, PER_PROGRAM, NONE"),
    Key("cpp_demangle", _boolean, "show C++ names demangled"),
    Key("debuginfod_lines", _boolean, "ask debuginfod servers for source lines in stacks, not for names alone"),
    Key("lazy_symbolication", _boolean, "accepted for compatibility: symbols are resolved when they are printed"),
    Key("license", _license, "licence that the programs are loaded under"),
    Key("log_size", _COUNT, "bytes of verifier log"),
    Key("mark_unreadable", _boolean, "strings that cannot be read are <unreadable>, and counted"),
    Key("max_bpf_progs", _COUNT, "how many BPF programs a script may become"),
    Key("max_cat_bytes", _SIZE, "how much of a file cat() prints"),
    Key("max_loop_iterations", _integer(1, 2**62), "iterations of all loops together, each time that a probe fires"),
    Key("max_map_keys", _COUNT, "entries of a keyed map that is not declared"),
    Key("max_memory", _memory, "memory that a run may take: 512M, 2G, 10%"),
    Key("max_metric_series", _COUNT, "how many keys of a map --metrics shows"),
    Key("max_probes", _COUNT, "how many probes a script may attach"),
    Key("max_rate", _COUNT, "how many hits per second run a block; 0 is no limit"),
    Key("max_stack_depth", _integer(1, DEEPEST_STACK), "frames of a stack, where the script names no other limit"),
    Key("max_strlen", _integer(1, _MAX_STRING), "bytes of str(), buf() and path() results"),
    Key("missing_probes", _choice("error", "warn", "ignore"), "what to do when a probe cannot be attached"),
    Key("on_stack_limit", _integer(0, 512), "larger objects (bytes) live in memory outside the BPF stack"),
    Key("perf_rb_pages", _integer(0, 2**19), "pages of the ring buffer; 0: by available memory"),
    Key("print_maps_on_exit", _boolean, "print all maps at the end"),
    Key("python_frames", _boolean, "ustack shows Python's functions in place of the interpreter's loop"),
    Key("raw_tracepoints", _choice("auto", "plain"), "whether hot tracepoints are traced by way of the raw ones"),
    Key("short_generics", _boolean, "show arguments of generic functions and types in stacks as <…>"),
    Key("show_debug_info", _boolean, "show file, line and inlined functions in stacks"),
    Key("use_blazesym", _boolean, "accepted for compatibility"),
    Key("stack_mode", _choice("bpftrace", "perf", "raw", "build_id"), "how stacks print by default"),
    Key("stack_unwinding", _choice("sampled", "auto", "frame_pointers", "tables"), "how ustack finds callers"),
    Key("str_trunc_trailer", _text, "what is appended to a truncated string"),
    Key("syscall_tracepoints", _choice("auto", "raw", "plain"), "how system call tracepoints are traced"),
    Key("watchdog", _SIZE, "seconds after which probes do nothing while pytrace does not run; 0: never"),
    Key("unstable_tseries", _unstable, "tseries(): enable, warn, error"),
    Key("unstable_dw_ustack", _unstable, "dw_ustack(): enable, warn, error"),
    Key("unstable_typeinfo", _unstable, "typeinfo(): enable, warn, error"),
    Key("unstable_import_statement", _unstable, "import inside a block: enable, warn, error"),
)

RENAMED = {
    "strlen": "max_strlen",
    "no_cpp_demangle": "cpp_demangle",
    "cat_bytes_max": "max_cat_bytes",
    "map_keys_max": "max_map_keys",
}
"""Old names of keys."""

INVERTED = frozenset({"no_cpp_demangle"})
"""Old names with the opposite meaning of the new key."""

IGNORED = frozenset(
    {
        "symbol_source",
        "max_type_res_iterations",
        "unstable_addr",
        "unstable_import",
        "unstable_macro",
        "unstable_map_decl",
    }
)
"""Obsolete keys, accepted without effect."""

OTHER_VARIABLES = frozenset(
    {"BTF", "COLOR", "KERNEL_BUILD", "KERNEL_SOURCE", "TRACEBACK", "VENV", "VM_WAIT", "VMLINUX"}
)
"""Variables with our prefix that are not configuration keys."""

_OF_TESTS = ("PYTRACE_TEST_", "PYTRACE_PID")
"""Prefixes of variables that our tests use."""

_TABLE = {row.name: row for row in KEYS}
if len(_TABLE) != len(KEYS) or set(_TABLE) != set(Config.__struct_fields__):
    raise ValueError("configuration table and Config differ")


def canonical(name: str) -> str:
    """The table's spelling of a key as scripts may write it (any case, with a prefix); renamed keys are not changed."""
    upper = name.upper()
    for prefix in ENVIRONMENT_PREFIXES:
        upper = upper.removeprefix(prefix)
    return upper.lower()


def key(name: str) -> Key | None:
    """The row of a canonical name."""
    return _TABLE.get(name)


def key_names() -> list[str]:
    """All names, for suggestions."""
    return list(_TABLE)


def read_value(name: str, value: Setting) -> tuple[str, Setting]:
    """The table name and the checked value of a canonical name, which may be a renamed one.

    Raises:
        KeyError: there is no such key.
        BadValueError: the key does not accept *value*.
    """
    row = _TABLE[RENAMED.get(name, name)]
    setting = row.read(value)
    return row.name, (not setting if name in INVERTED else setting)


def variables(environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """``(variable, canonical name, text)`` of all configuration variables in *environment*.

    If both prefixes are set, only the one with precedence is returned. Other variables are omitted.
    """
    known = {*_TABLE, *RENAMED, *IGNORED}
    by_name: dict[str, tuple[str, str, str]] = {}
    for prefix in ENVIRONMENT_PREFIXES:
        for variable in sorted(environment):
            name = variable.removeprefix(prefix).lower()
            if variable.startswith(prefix) and variable.isupper() and name in known:
                by_name.setdefault(RENAMED.get(name, name), (variable, name, environment[variable]))
    return list(by_name.values())


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables of *environment* with pytrace's own prefix that are not known.

    Those with bpftrace's prefix are not checked: bpftrace may know them.
    """
    prefix = ENVIRONMENT_PREFIXES[0]
    known = {name.upper() for name in (*_TABLE, *RENAMED, *IGNORED)} | OTHER_VARIABLES
    return [
        name
        for name in sorted(environment)
        if name.startswith(prefix) and name.removeprefix(prefix) not in known and not name.startswith(_OF_TESTS)
    ]


def _variable_names() -> list[str]:
    """All variables of pytrace's own, without the prefix, for suggestions."""
    return sorted({name.upper() for name in _TABLE} | OTHER_VARIABLES)
