from __future__ import annotations

import pytest

from pytrace.core.builtins import BUILTINS, Mode
from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs.c_types import signature
from pytrace.multitools.specs.problems import SpecText
from pytrace.multitools.specs.scope import Scope, unknown_at_return

PARAMETERS = signature(SpecText.of("struct file *file, char *to, size_t count"))


def test_arguments_are_counted_from_one() -> None:
    scope = Scope()
    assert (scope.resolve("arg1"), scope.resolve("arg12"), scope.resolve("arg0")) == ("arg0", "arg11", None)
    assert Scope(numbered=False).resolve("arg1") is None


def test_typed_arguments_have_names() -> None:
    scope = Scope(arguments=("file", "buf"), parameters=PARAMETERS)
    assert (scope.resolve("arg2"), scope.resolve("arg3")) == ("args.buf", None)
    assert scope.resolve("file") == "$file"
    assert scope.resolve("count") is None
    assert scope.variables("$file->f_flags") == ["$file = (struct file *)args.file;"]


def test_only_used_parameters_become_variables() -> None:
    scope = Scope(parameters=PARAMETERS)
    assert scope.variables("$count > 1", "str($to)") == ["$to = arg1;", "$count = arg2;"]
    assert scope.variables("$counted > 1") == []


def test_results_and_fields() -> None:
    assert Scope(returns=True).resolve("$retval") == "retval"
    assert Scope().resolve("retval") is None
    assert Scope(fields=False).resolve("args") is None
    assert "retval" in Scope(returns=True).known


def test_texts() -> None:
    scope = Scope(size=32)
    assert scope.string("arg0") == "str(arg0, 32)"
    assert [scope.string(text) for text in ("comm", '"abc"', "usym(arg0)")] == ["comm", '"abc"', "usym(arg0)"]


def test_the_return_is_explained() -> None:
    error = unknown_at_return(TraceError("unknown name 'arg1'", hints=("known here",)))
    assert error.hints[0] == "known here"
    assert "$entry(NAME)" in error.hints[1]
    with pytest.raises(TraceError, match="unknown name"):
        raise error


def test_the_declared_type_replaces_the_kernels() -> None:
    declared = signature(SpecText.of("struct sock *sk, struct sockaddr_in *a, char *text, int n"))
    scope = Scope(arguments=("sk", "uaddr", "buf", "addr_len"), parameters=declared)
    assert scope.variables("$a->sin_port", "$text", "$n") == [
        "$a = (struct sockaddr_in *)args.uaddr;",
        "$text = args.buf;",
        "$n = (int32)args.addr_len;",
    ]


def test_functions_and_values_are_those_of_the_builtin_table() -> None:
    """A new builtin is known without a list by hand; what is no value of its arguments is not."""
    names = Scope().names()
    assert {"str", "ntop", "path", "strftime", "one_of", "ifname", "kaddr", "cgroup_path"} <= names.functions
    assert names.functions.isdisjoint({"printf", "exit", "count", "hist", "delete", "system", "signal", "override"})
    for row in BUILTINS:
        if row.call and row.most != 0 and not row.unsafe and row.mode is Mode.KERNEL:
            assert (row.name in names.functions) == (row.family not in ("aggregate", "map")), row.name
        if row.value and row.probes is None and row.mode is Mode.KERNEL:
            assert names.resolve(row.name) is not None, row.name
    assert (names.resolve("ppid"), names.resolve("cgroup"), names.resolve("no_such")) == ("ppid", "cgroup", None)
