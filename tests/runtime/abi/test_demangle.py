"""pytrace.runtime.abi.demangle: C++ and Rust names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.runtime.abi.demangle import available, demangle, qualified_name
from pytrace.runtime.live_kernel import LiveKernel

needs_cxx = pytest.mark.skipif(not available(), reason="no C++ runtime library on this machine")


@needs_cxx
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_ZN3zoo6Animal4walkEi", "zoo::Animal::walk(int)"),
        ("_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"),
        ("_ZlsRSoi", "operator<<(std::ostream&, int)"),
        ("main", "main"),
        ("_Zebra", "_Zebra"),
        ("", ""),
    ],
)
def test_cxx(name: str, text: str) -> None:
    assert demangle(name) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_ZN1r4deep10S$LT$T$GT$3run17h31d8230455278fe2E", "r::deep::S<T>::run"),
        ("_RNvMNtCs6GmmlP4bgsG_1r4deepINtB2_1SReE3runB4_", "<r::deep::S<&str>>::run"),
        ("_Random", "_Random"),
    ],
)
def test_rust(name: str, text: str) -> None:
    assert demangle(name) == text


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("zoo::Animal::walk(int)", "zoo::Animal::walk"),
        ("int zoo::twice<int>(int)", "zoo::twice<int>"),
        ("void f<int (*)(int)>(int (*)(int))", "f<int (*)(int)>"),
        ("operator<<(std::ostream&, int)", "operator<<"),
        ("A::operator()(int) const", "A::operator()"),
        ("A::operator bool() const", "A::operator bool"),
        ("bool operator< <int>(A<int> const&)", "operator< <int>"),
        ("(anonymous namespace)::helper(int)", "(anonymous namespace)::helper"),
        ("A::f()::{lambda(int)#1}::operator()(int) const", "A::f()::{lambda(int)#1}::operator()"),
        ("plain", "plain"),
    ],
)
def test_qualified_names(demangled: str, name: str) -> None:
    assert qualified_name(demangled) == name


@needs_cxx
def test_functions_by_demangled_name(programs: Path) -> None:
    kernel, path = LiveKernel(), str(programs / "classes")
    assert len(kernel.cpp_symbols(path, "zoo::Animal::walk")) == 2, "both overloads"
    ((symbol, name),) = kernel.cpp_symbols(path, "zoo::Animal::walk(int)")
    assert (symbol.name, name) == ("_ZN3zoo6Animal4walkEi", "zoo::Animal::walk(int)")
    assert {found for _, found in kernel.cpp_symbols(path, "zoo::twice<*>")} == {
        "int zoo::twice<int>(int)", "long zoo::twice<long>(long)",
    }  # fmt: skip
    assert kernel.cpp_symbols(path, "main") == []
