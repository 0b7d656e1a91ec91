"""pytrace.runtime.load.live_kernel: what answers depend on, and answers that need no kernel of a certain kind."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.base import cgroups
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FunctionPrototype, UserSymbol
from pytrace.core.types import VOID, Struct
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.load import features, live_kernel
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine import fingerprints, perf
from tests.support.small_program import built, split


def kinds(kernel: LiveKernel) -> list[str]:
    """Kinds of the facts that answers depend on, beside the kernel itself."""
    first, *rest = kernel.dependencies()
    assert first[0] == "kernel"
    return [fact[0] for fact in rest]


def with_parts(**parts: Any) -> LiveKernel:
    """A kernel with other parts than those of this machine."""
    kernel = LiveKernel(environment={})
    kernel.__dict__.update(parts)
    return kernel


# ---------------------------------------------------------------------------------------------- machine


def test_nothing_is_looked_at_before_it_is_asked_for() -> None:
    kernel = LiveKernel()
    assert {"types", "kallsyms", "tracepoint_files", "_binaries"}.isdisjoint(kernel.__dict__)
    assert kinds(kernel) == []
    assert kernel.debug_problems() == []


def test_features_are_there_and_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "has", {"a": True, "b": False, "c": True}.__getitem__)
    kernel = LiveKernel(disabled=["c"])
    assert [kernel.feature(name) for name in "abc"] == [True, False, False]
    assert kernel.features_used == {"a"}


@pytest.mark.parametrize(("ahead", "last", "cpus"), [(False, 8, 9), (True, 8, 64), (True, 99, 100)])
def test_processors(ahead: bool, last: int, cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf, "possible_cpus", lambda: [0, 1, last])
    assert LiveKernel(ahead=ahead).possible_cpus == cpus


@pytest.mark.parametrize(
    ("inode", "namespace"), [("0", None), (str(0xEFFFFFFC), None), ("4026532000", (4, 4026532000))]
)
def test_the_first_pid_namespace_is_none(
    inode: str, namespace: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "pid_namespace_fact", lambda: ("pid_namespace", "4", inode))
    kernel = LiveKernel()
    assert kernel.pid_namespace == namespace
    assert kinds(kernel) == ["pid_namespace"]


# ---------------------------------------------------------------------------------------------- types


def test_a_kernel_without_type_information() -> None:
    kernel = with_parts(_btf_path="")
    assert not kernel.has_btf
    assert kernel.types is None
    assert kernel.struct("struct", "x") is kernel.enum("x") is kernel.typedef("x") is kernel.enumerator("x") is None
    assert kernel.function("x") is kernel.raw_tracepoint_prototype("x") is None
    assert kernel.function_prototypes("*") == kernel.raw_tracepoints("*") == kernel.iterator_names() == []
    assert list(kernel.type_names("struct")) == []
    assert (kernel.type_id("struct", "x"), kernel.iterators()) == (0, {})


def incomplete(_what: str, _name: str, _module: str = "") -> bool:
    """Modules may have what is asked for."""
    return True


@pytest.mark.parametrize(("origin", "depends"), [("vmlinux", False), ("nf", True), (None, True)])
def test_types_of_modules_depend_on_what_is_loaded(origin: str | None, depends: bool) -> None:
    found = None if origin is None else Struct("struct", "s", 0, (), origin=origin)
    kernel = with_parts(types=SimpleNamespace(value_type=lambda _kind, _name: found, incomplete=incomplete))
    assert kernel.struct("struct", "s") is found
    assert kernel.enum("s") is None
    assert kinds(kernel) == (["modules"] if depends and os.path.exists("/proc/modules") else [])


@pytest.mark.parametrize(("module", "depends"), [("vmlinux", False), ("nf", True), (None, True)])
def test_functions_of_modules_depend_on_what_is_loaded(module: str | None, depends: bool) -> None:
    found = None if module is None else FunctionPrototype("f", module, (), VOID)
    kernel = with_parts(types=SimpleNamespace(function=lambda _name, _module: found, incomplete=incomplete))
    assert kernel.function("f") is found
    assert kinds(kernel) == (["modules"] if depends and os.path.exists("/proc/modules") else [])


# ---------------------------------------------------------------------------------------------- functions


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("traceable", ""), ("rcu_read_lock", "excluded"), ("black", "blacklisted"), ("hidden", "notrace"),
        ("folded", "inlined"), ("counter", "variable"), ("nothing", "missing"),
    ],
)  # fmt: skip
def test_why_a_function_cannot_be_traced(name: str, reason: str) -> None:
    kernel = with_parts(
        _functions=SimpleNamespace(
            match=lambda pattern, _module: {"": ["traceable"]} if pattern == "traceable" else {"": []},
            blacklisted=lambda name: name == "black",
        ),
        kallsyms=SimpleNamespace(
            owners=lambda name: ["vmlinux"] if name == "hidden" else [], has=lambda name: name == "counter"
        ),
        types=SimpleNamespace(
            function=lambda name, _module: FunctionPrototype(name, "vmlinux", (), VOID) if name == "folded" else None,
            incomplete=incomplete,
        ),
    )
    assert kernel.untraceable_reason(name) == reason


@pytest.mark.parametrize(
    ("name", "installed", "state"),
    [
        ("a", {"b"}, "loaded"),
        ("b", {"b"}, "installed"),
        ("c", {"b"}, "built in"),
        ("d", {"b"}, "absent"),
        ("d", set(), ""),
    ],
)
def test_states_of_modules(
    name: str, installed: set[str], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = with_parts(_module_index=SimpleNamespace(installed=installed, built_in={"c"}))
    monkeypatch.setattr(kernel, "modules", lambda: ["a"])
    assert kernel.module_state(name) == state


@pytest.mark.parametrize(
    ("pattern", "found", "certain"),
    [
        ("nf_hook", ["nf"], True),
        ("nf_*", ["named", "nf"], False),
        ("other_f", ["family"], False),
        # The kernel has functions of that family: a name that it lacks is rather misspelt.
        ("vfs_raed", [], False),
    ],
)
def test_modules_that_may_have_a_function(
    pattern: str, found: list[str], certain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = SimpleNamespace(
        exporting=lambda text: ["nf", "loaded"] if text.startswith("nf") else [],
        named_like=lambda text: ["named", "nf"] if text == "nf_*" else [],
        of_family=lambda _text: ["family", "loaded"],
    )
    kernel = with_parts(_module_index=index)
    monkeypatch.setattr(kernel, "modules", lambda: ["loaded"])
    monkeypatch.setattr(kernel, "kernel_functions", lambda text: ["vfs_read"] if text == "vfs_*" else [])
    assert kernel.unloaded_modules(pattern) == (found, certain)


# ---------------------------------------------------------------------------------------------- symbols


def symbols(address: int | None, *, withheld: str = "", there: bool = True, own: bool = True) -> LiveKernel:
    return with_parts(
        kallsyms=SimpleNamespace(
            address=lambda _: address, withheld=withheld, has=lambda _: there, in_kernel=lambda _: own
        )
    )


def test_addresses_of_the_kernel_are_those_of_this_boot() -> None:
    kernel = symbols(0xFFFF)
    assert kernel.kernel_symbol("f") == 0xFFFF
    assert kinds(kernel) == ["boot"]


def test_addresses_of_modules_and_missing_ones_depend_on_what_is_loaded() -> None:
    modules = ["modules"] if os.path.exists("/proc/modules") else []
    for kernel in (symbols(0xFFFF, own=False), symbols(None)):
        kernel.kernel_symbol("f")
        assert kinds(kernel) == ["boot", *modules]


def test_an_address_that_the_kernel_hides() -> None:
    with pytest.raises(TraceError, match="hides the address of 'f' from this process") as raised:
        symbols(None, withheld="needs CAP_SYSLOG").kernel_symbol("f")
    assert raised.value.hints == ("needs CAP_SYSLOG",)
    assert symbols(None, withheld="needs CAP_SYSLOG", there=False).kernel_symbol("f") is None


def test_binaries_and_their_debug_files_are_dependencies(tmp_path: Path) -> None:
    stripped, debug = split(built(tmp_path), tmp_path)
    kernel = LiveKernel(environment={}, debuginfo=[str(tmp_path)])
    (found,) = kernel.user_symbols(str(stripped), "helper")
    assert found.name == "helper"
    paths = {fact[1] for fact in kernel.dependencies()[1:]}
    assert {str(stripped), str(debug)} <= paths
    assert kernel.user_code(str(stripped), found.offset, 4) == stripped.read_bytes()[found.offset : found.offset + 4]
    assert kernel.user_code(str(tmp_path / "missing"), 0, 4) == b""
    places = [found.offset, found.offset + 4]
    assert b"".join(kernel.user_codes(str(stripped), places, 4)) == kernel.user_code(str(stripped), places[0], 8)
    assert kernel.user_codes(str(tmp_path / "missing"), places, 4) == [b"", b""]
    assert kernel.user_offset(str(stripped), found.address) == found.offset
    assert kernel.user_address_at(str(stripped), found.offset) == found.address
    assert kernel.user_size(str(stripped), "counter") == 4
    assert kernel.user_size(str(stripped), "nothing") == 0
    assert kernel.user_address(str(stripped), "nothing") is None
    assert list(kernel.user_symbol_names(str(stripped), "hel*")) == ["help", "helper"]
    assert fingerprints.still_true(kernel.dependencies())
    debug.unlink()
    assert not fingerprints.still_true(kernel.dependencies())


def test_files_that_match_must_be_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = with_parts(
        _binaries=SimpleNamespace(
            libraries=SimpleNamespace(find=lambda *_: ["/gone", "/there"], dependencies=lambda *_: [("never",)]),
            can_open=lambda path: path == "/there",
        ),
    )
    assert kernel.binaries("/*", None) == ["/there"]
    assert kernel.binaries("/gone", None) == ["/gone", "/there"], "a name is taken at its word"
    assert kinds(kernel) == ["never"]


def test_a_process_whose_files_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_visible(pid: int) -> None:
        raise PermissionError(f"process {pid} belongs to somebody else")

    monkeypatch.setattr(live_kernel, "check_visible", check_visible)
    libraries = SimpleNamespace(find=lambda *_: [], dependencies=lambda *_: [])
    kernel = with_parts(_binaries=SimpleNamespace(libraries=libraries))
    assert kernel.binaries("x", None) == []
    with pytest.raises(PermissionError, match="process 7"):
        kernel.binaries("x", 7)


def test_problems_of_debug_information_so_far() -> None:
    binaries = SimpleNamespace(all_problems=lambda: ["why"], problems=lambda _path: ["one"])
    kernel = with_parts(_binaries=binaries)
    assert (kernel.debug_problems(), kernel.user_debug_problems("/x")) == (["why"], ["one"])
    assert isinstance(LiveKernel()._binaries, UserBinaries)


# ---------------------------------------------------------------------------------------------- control groups


def test_control_groups_by_path(tmp_path: Path) -> None:
    made = tmp_path / "job"
    made.mkdir()
    (made / "cgroup.procs").touch()
    kernel = with_parts(_cgroup_root=str(tmp_path))
    assert kernel.cgroup_id("job") == kernel.cgroup_id(str(made)) == made.stat().st_ino
    assert kernel.cgroup_id(str(tmp_path)) is kernel.cgroup_id("missing") is None
    assert "file" in kinds(kernel)


def test_where_control_groups_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for unified, root in ((True, "/x"), (False, "/sys/fs/cgroup")):
        monkeypatch.setattr(cgroups, "hierarchies", lambda unified=unified: [cgroups.Mount("0:1", "/", "/x", unified)])
        assert LiveKernel()._cgroup_root == root


def test_symbols_are_those_of_binaries() -> None:
    symbol = UserSymbol("f", 1, 2, 3)
    kernel = with_parts(
        _binaries=SimpleNamespace(
            cpp_symbols=lambda _path, pattern: [(symbol, pattern)], files=lambda path: [path, f"{path}.debug"]
        )
    )
    assert kernel.cpp_symbols("/x", "N::f") == [(symbol, "N::f")]
    assert [fact[1] for fact in kernel.dependencies()[1:]] == ["/x", "/x.debug"]
