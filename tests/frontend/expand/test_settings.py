from __future__ import annotations

from pytrace.core.config import Config
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.expand import settings
from pytrace.frontend.syntax import parser


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


def test_keys_in_any_case_and_with_prefix() -> None:
    config, diagnostics = read("config = { MAX_STRLEN = 128; BPFTRACE_stack_mode = raw; } begin { }")
    assert not diagnostics.items
    assert (config.max_strlen, config.stack_mode) == (128, "raw")


def test_environment_wins() -> None:
    config, _ = read("config = { max_strlen = 128; } begin { }", BPFTRACE_MAX_STRLEN="64", PYTRACE_MAX_STRLEN="32")
    assert config.max_strlen == 32


def test_unknown_key_suggests() -> None:
    _, diagnostics = read("config = { max_strln = 128 } begin { }")
    (error,) = diagnostics.errors
    assert error.span.text == "max_strln"
    assert "max_strlen" in error.hints[0]


def test_bad_value_points_at_the_value() -> None:
    _, diagnostics = read("config = { stack_mode = pretty } begin { }")
    (error,) = diagnostics.errors
    assert error.span.text == "pretty"
    assert "bpftrace, perf, raw or build_id" in error.message


def test_renamed_and_ignored_keys_warn() -> None:
    config, diagnostics = read("config = { strlen = 64; no_cpp_demangle = true; unstable_macro = enable } begin { }")
    assert not diagnostics.failed
    assert len(diagnostics.warnings) == 3
    assert config.max_strlen == 64
    assert config.cpp_demangle is False


def test_key_set_twice_names_the_first() -> None:
    _, diagnostics = read("config = { max_strlen = 64; strlen = 32 } begin { }")
    assert [note.span.text for note in diagnostics.errors[0].notes] == ["max_strlen"]


def test_bad_variable_is_shown() -> None:
    _, diagnostics = read("begin { }", BPFTRACE_MAX_STRLEN="long")
    (error,) = diagnostics.errors
    assert error.span.source.name == "environment"
    assert error.span.text == "long"
