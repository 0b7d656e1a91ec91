

from __future__ import annotations

import pytest
from msgspec import convert, to_builtins

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions, Config
from pytrace.core.source import Source
from pytrace.frontend.expand import settings
from pytrace.frontend.expand.settings import BadValueError, Setting, read_value
from pytrace.frontend.syntax import parser
from tests.support.rows import each_row


def read(text: str, **environment: str) -> tuple[Config, Diagnostics]:
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", text), diagnostics)
    diagnostics.check()
    return settings.read(program, CompileOptions(environment=environment), diagnostics), diagnostics


def test_nothing_set() -> None:
    config, diagnostics = read("begin { }")
    assert config == Config()
    assert not diagnostics.items


def test_script_values_of_every_form() -> None:
    config, diagnostics = read(
        'config = { max_strlen = 128; missing_probes = warn; str_trunc_trailer = ">>"; print_maps_on_exit = false }'
        "begin { }"
    )
    assert not diagnostics.items
    assert (config.max_strlen, config.missing_probes, config.str_trunc_trailer) == (128, "warn", ">>")
    assert config.print_maps_on_exit is False


def test_where_keys_are_set() -> None:
    config, diagnostics = read("config = { MAX_STRLEN = 128; BPFTRACE_stack_mode = raw; } begin { }")
    assert not diagnostics.items
    assert (config.max_strlen, config.stack_mode) == (128, "raw")
    config, _ = read("config = { max_strlen = 128; } begin { }", BPFTRACE_MAX_STRLEN="64", PYTRACE_MAX_STRLEN="32")
    assert config.max_strlen == 32


def test_mistakes_in_keys() -> None:
    _, diagnostics = read("config = { max_strln = 128 } begin { }")
    (error,) = diagnostics.errors
    assert error.span.text == "max_strln"
    assert "max_strlen" in error.hints[0]
    _, diagnostics = read("config = { stack_mode = pretty } begin { }")
    (error,) = diagnostics.errors
    assert error.span.text == "pretty"
    assert "bpftrace, perf, raw or build_id" in error.message
    config, diagnostics = read("config = { strlen = 64; no_cpp_demangle = true; unstable_macro = enable } begin { }")
    assert not diagnostics.failed
    assert len(diagnostics.warnings) == 3
    assert config.max_strlen == 64
    assert config.cpp_demangle is False
    _, diagnostics = read("config = { max_strlen = 64; strlen = 32 } begin { }")
    assert [note.span.text for note in diagnostics.errors[0].notes] == ["max_strlen"]


DEFAULTS = {
    "cpp_demangle": True,
    "debuginfod_lines": False,
    "lazy_symbolication": True,
    "license": "GPL",
    "log_size": 1_000_000,
    "max_bpf_progs": 1024,
    "max_cat_bytes": 10240,
    "max_map_keys": 4096,
    "max_probes": 1024,
    "max_strlen": 1024,
    "missing_probes": "error",
    "on_stack_limit": 32,
    "perf_rb_pages": 0,
    "print_maps_on_exit": True,
    "short_generics": False,
    "stack_mode": "bpftrace",
    "str_trunc_trailer": "..",
    "unstable_tseries": "warn",
    "unstable_dw_ustack": "warn",
    "unstable_typeinfo": "error",
    "unstable_import_statement": "error",
}


@each_row(("name", "value"), DEFAULTS.items())
def test_default(name: str, value: object) -> None:
    assert getattr(Config(), name) == value


def test_keys_are_described_and_travel() -> None:
    assert [row.name for row in settings.KEYS] == list(Config.__struct_fields__)
    assert all(row.doc for row in settings.KEYS)
    made = Config(max_strlen=99, stack_mode="perf")
    assert convert(to_builtins(made), Config) == made


@each_row(
    ("name", "given", "value"),
    [
        ("print_maps_on_exit", "off", False),
        ("print_maps_on_exit", 1, True),
        ("print_maps_on_exit", "YES", True),
        ("max_strlen", "0b1000000", 64),
        ("max_strlen", 65536, 65536),
        ("missing_probes", "WARN", "warn"),
        ("stack_mode", "Build_ID", "build_id"),
        ("license", "Dual MIT/GPL", "Dual MIT/GPL"),
        ("cache_user_symbols", "1", "AUTO"),
        ("cache_user_symbols", 0, "NONE"),
        ("cache_user_symbols", "per_pid", "PER_PID"),
        ("unstable_tseries", True, "enable"),
        ("unstable_tseries", "false", "error"),
        ("unstable_tseries", "enable", "enable"),
        ("str_trunc_trailer", "", ""),
    ],
)
def test_values(name: str, given: Setting, value: Setting) -> None:
    assert read_value(name, given) == (name, value)


@each_row(
    ("name", "given"),
    [
        ("print_maps_on_exit", "maybe"),
        ("max_strlen", 0),
        ("max_strlen", 65537),
        ("max_strlen", "many"),
        ("max_strlen", True),
        ("max_probes", -1),
        ("missing_probes", "explode"),
        ("stack_mode", 1),
        ("license", "Proprietary"),
        ("cache_user_symbols", "sometimes"),
        ("unstable_typeinfo", "loud"),
        ("str_trunc_trailer", 3),
    ],
)
def test_bad_values(name: str, given: Setting) -> None:
    with pytest.raises(BadValueError, match="expects"):
        read_value(name, given)


@pytest.mark.parametrize(
    ("old", "given", "new", "value"),
    [
        ("strlen", 64, "max_strlen", 64),
        ("no_cpp_demangle", True, "cpp_demangle", False),
        ("cat_bytes_max", 1, "max_cat_bytes", 1),
        ("map_keys_max", 8, "max_map_keys", 8),
    ],
)
def test_renamed(old: str, given: Setting, new: str, value: Setting) -> None:
    assert read_value(old, given) == (new, value)


def test_unknown_key() -> None:
    with pytest.raises(KeyError):
        read_value("max_speed", 1)


def test_variables_of_the_environment() -> None:
    environment = {"BPFTRACE_MAX_STRLEN": "1", "PYTRACE_MAX_STRLEN": "2", "BPFTRACE_STACK_MODE": "raw", "HOME": "/"}
    found = {name: text for _, name, text in settings.variables(environment)}
    assert found == {"max_strlen": "2", "stack_mode": "raw"}
    environment = {"BPFTRACE_COLOR": "never", "PYTRACE_TRACEBACK": "1", "BPFTRACE_max_strlen": "2"}
    assert settings.variables(environment) == []
    _, diagnostics = read("begin { }", BPFTRACE_MAX_STRLEN="long")
    (error,) = diagnostics.errors
    assert error.span.source.name == "environment"
    assert error.span.text == "long"
