"""Names of C++ and Rust functions as people write them."""

from __future__ import annotations

import string
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine.demangle import (
    MalformedNameError,
    available,
    demangle,
    qualified_name,
    short_name,
    with_bodies,
)
from pytrace.runtime.machine.demangle import demangle_rust_v0 as rust_names_demangle
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- demangle
# pytrace.runtime.machine.demangle: C++ and Rust names.


needs_cxx = pytest.mark.skipif(not available(), reason="no C++ runtime library on this machine")


@needs_cxx
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_ZN3zoo6Animal4walkEi", "zoo::Animal::walk(int)"),
        ("_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"),
        ("_ZN3foo3barEv.isra.0.cold", "foo::bar() [clone .isra.0] [clone .cold]"),
        ("_ZN3foo3barEv.llvm.1234567", "foo::bar() [clone .llvm.1234567]"),
        ("_ZN3foo3barEv.LTHUNK1.2", "foo::bar() [clone .LTHUNK1.2]"),
        ("_Z7numbersi.resume", "numbers(int) [clone .resume]"),
        (
            "_Z7numbersPZ7numbersIiE4TaskT_E26_Z7numbersIiE4TaskT_.Frame.actor",
            "numbers(numbers<int>(int)::_Z7numbersIiE4TaskT_.Frame*) [clone .actor]",
        ),
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
        (
            "_ZN52_$LT$$RF$T$u20$as$u20$core..fmt..Debug$u7b$$u7d$$GT$3fmt17h0123456789abcdefE",
            "<&T as core::fmt::Debug{}>::fmt",
        ),
        ("_ZN1r2go17h31d8230455278fe2E.llvm.1234", "r::go"),
        ("_ZN1r2go17h31d8230455278fe2E.cold.7", "r::go.cold.7"),
        ("_RNvMNtCs6GmmlP4bgsG_1r4deepINtB2_1SReE3runB4_", "<r::deep::S<&str>>::run"),
        ("_Random", "_Random"),
    ],
)
def test_rust(name: str, text: str) -> None:
    assert demangle(name) == text


@needs_cxx
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_ZN1r4deep10S$LT$T$GT$3run17h31d8230455278fe2E", "r::deep::S<…>::run"),
        ("_RNvMNtCs6GmmlP4bgsG_1r4deepINtB2_1SReE3runB4_", "<r::deep::S<…>>::run"),
        ("_RINvC1a1fFUKCPhOSlEuFEyE", "a::f::<…>"),
        ("_RNvXC1aINtC1a6SquarehENtC1a5Shape4area", "<a::Square<…> as a::Shape>::area"),
        ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<…>::push_back(int&&)"),
        ("_ZltIiEbRK1AIT_ES4_", "bool operator< <…>(A<…> const&, A<…> const&)"),
        ("_ZlsRSoi", "operator<<(std::ostream&, int)"),
        ("_Z1fI1BILb1EEEvT_", "void f<…>(B<…>)"),
        ("main<T>", "main<T>"),
    ],
)
def test_short_names(name: str, text: str) -> None:
    assert short_name(name) == text


@each_row(
    ("name", "written", "text"),
    [
        ("a::f::{closure#0}", "a::f::{async_fn#0}", "a::f::{async_fn#0}"),
        ("a::f::{closure#0}", "", "a::f::{closure#0}"),
        ("a::f::{closure#1}", "a::f::{async_fn#0}", "a::f::{closure#1}"),
        ("b::f::{closure#0}", "a::f::{async_fn#0}", "b::f::{closure#0}"),
        ("a::f::<u8>::{closure#0}", "a::f::{async_fn#0}<u8>", "a::f::<u8>::{async_fn#0}"),
        ("a::f::<…>::{closure#0}", "a::f::{async_fn#0}<u8>", "a::f::<…>::{async_fn#0}"),
        (
            "a::f::{closure#0}::{closure#1}::{closure#0}",
            "a::f::{async_fn#0}::{closure#1}::{async_closure#0}",
            "a::f::{async_fn#0}::{closure#1}::{async_closure#0}",
        ),
        (
            "a::f::{closure#0}::g::{closure#0}",
            "a::f::{async_fn#0}::g::{gen_block#0}",
            "a::f::{async_fn#0}::g::{gen_block#0}",
        ),
        (
            "<a::T<u8> as a::Q>::f::{closure#0}",
            "a::{impl#3}::f::{async_fn#0}<u8>",
            "<a::T<u8> as a::Q>::f::{async_fn#0}",
        ),
        ("a::run::<a::f<u8>::{closure#0}>", "a::run<a::f::{async_fn_env#0}<u8>>", "a::run::<a::f<u8>::{async_fn#0}>"),
        (
            "<fn(u8) -> a::f::{closure#0} as Q>::g",
            "q::{impl#2}::g<a::f::{async_fn_env#0}>",
            "<fn(u8) -> a::f::{async_fn#0} as Q>::g",
        ),
        # Methods with equal names of two types: which one is meant is not known.
        (
            "a::r::<<a::T>::f::{closure#0}, <a::U>::f::{closure#0}>",
            "a::r<a::{impl#0}::f::{async_fn_env#0}, a::{impl#1}::f::{closure_env#0}>",
            "a::r::<<a::T>::f::{closure#0}, <a::U>::f::{closure#0}>",
        ),
        # The older mangling.
        ("a::f::{{closure}}::{{closure}}", "a::f::{async_fn#0}::{closure#0}", "a::f::{async_fn#0}::{{closure}}"),
        ("a::T<K,V>::f::{{closure}}", "a::{impl#0}::f::{async_fn#0}<u8>", "a::T<K,V>::f::{async_fn#0}"),
        ("<a::T<K> as a::Q>::f::{{closure}}", "a::{impl#0}::f::{coroutine#2}", "<a::T<K> as a::Q>::f::{coroutine#2}"),
    ],
)
def test_bodies_of_async_functions(name: str, written: str, text: str) -> None:
    assert with_bodies(name, written) == text


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
    ((symbol, name),) = kernel.cpp_symbols(path, "_ZN3zoo6Animal4walkEi")
    assert (symbol.name, name) == ("_ZN3zoo6Animal4walkEi", "zoo::Animal::walk(int)")
    assert len(kernel.cpp_symbols(path, "_ZN3zoo6Animal4walk*")) == 2


@needs_cxx
def test_parts_that_are_jumped_into_are_no_functions(tmp_path: Path) -> None:
    names = ("_ZN4shop3addEi", "_ZN4shop3addEi.cold", "_ZN4shop3getEi.isra.0", "_ZN4shop3getEi.isra.0.cold")
    text = "".join(f'.globl "{n}"\n.type "{n}", @function\n"{n}": .byte 0x90\n.size "{n}", 1\n' for n in names)
    (tmp_path / "x.s").write_text(text)
    path = str(tmp_path / "x.so")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", path, str(tmp_path / "x.s")], check=True)
    kernel = LiveKernel()
    assert [symbol.name for symbol, _ in kernel.cpp_symbols(path, "shop::*")] == [names[0], names[2]]
    assert [symbol.name for symbol, _ in kernel.cpp_symbols(path, names[1])] == [names[1]], "named itself"


def _nested(levels: int) -> str:
    """A pair of two pairs of two pairs …"""
    last, text = "S0_", "_Z1fSt4pairIiiE"
    for number in range(levels):
        text += f"S_I{last}{last}E"
        last = f"S{(string.digits + string.ascii_uppercase)[number + 1]}_"
    return text


def _chained(levels: int) -> str:
    """A nested name whose parts have the name before them as arguments, twice."""
    digits = string.digits + string.ascii_uppercase
    numbers = ["", *digits, *(f"1{digit}" for digit in digits)]
    parts = [f"1bI{2 * f'S{numbers[2 * level]}_'}E" for level in range(levels)]
    return f"_ZN1a{''.join(parts)}1cEv"


def _rust_tuples(levels: int) -> str:
    text, last = "INvC1a1bTuuE", 8
    for _ in range(levels):
        reference = f"B{_base_62(last)}"
        last = len(text)
        text += f"T{reference}{reference}E"
    return f"_R{text}E"


def _base_62(number: int) -> str:
    digits, text = string.digits + string.ascii_lowercase + string.ascii_uppercase, ""
    number -= 1
    while True:
        text = digits[number % 62] + text
        number //= 62
        if not number:
            return text + "_"


@pytest.mark.parametrize("make", [_nested, _chained, _rust_tuples])
def test_names_that_would_fill_memory_stay_as_they_are(make: Callable[[int], str]) -> None:
    """Each level doubles the text: 200 characters of a traced binary would be gigabytes."""
    assert demangle(make(4)) != make(4)
    began = time.process_time()
    for levels in (18, 24, 30):
        assert len(demangle(make(levels))) < 1 << 26
    assert demangle(make(30)) == make(30)
    assert time.process_time() - began < 5


DAMAGED = (
    "_RNvC1a1",
    "_RYp",
    "_RIC1aKc_E",
    "_ZN17h0123456789abcdefE",
    "_ZN3a$b17h0123456789abcdefE",
    "_ZN9a$u1f600b17h0123456789abcdefE",
    "_ZN5$u7$b17h0123456789abcdefE",
    f"_R{'B_' * 50}",
)


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_rust_names_stay_as_they_are(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert demangle(name)
    assert capfd.readouterr().out == ""


# ---------------------------------------------------------------------------------------------- rust names
# pytrace.runtime.machine.demangle: each part of the grammar; texts are those of ``std::backtrace`` and of.


NESTED = (
    "_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator9rpositionNCNgNpB9_"
    "6memchr7memrchrs_0E0Cs5kl3Yqj6UkM_5alloc"
)
NESTED_TEXT = (
    "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition"
    "::<core::slice::memchr::memrchr::{closure#1}>::{closure#0}"
)


@each_row(
    ("name", "text"),
    [
        ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ("_RNvC7mycrate3foo.llvm.9D1C9369", "mycrate::foo"),
        ("_RNvC7mycrate3foo.0", "mycrate::foo.0"),
        ("_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"),
        (NESTED, NESTED_TEXT),
        ("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"),
        ("_RINvC1a1fAhj20_EC1b", "a::f::<[u8; 32]>"),
        ("_RINvC1a1fKj7b_Kin1_Kb1_Kc41_KpE", "a::f::<123, -1, true, 'A', _>"),
        ("_RINvC1a1fFUKCPhOSlEuFEyE", 'a::f::<unsafe extern "C" fn(*const u8, *mut [i32]), fn() -> u64>'),
        ("_RINvC1a1fFK7rust_ldEuE", 'a::f::<extern "rust-ld" fn()>'),
        ("_RINvC1a1fTEThEThbEE", "a::f::<(), (u8,), (u8, bool)>"),
        ("_RINvC1a1fReQNtC1a1bRL_cL_E", "a::f::<&str, &mut a::b, &char, '_>"),
        ("_RINvC1a1fDG0_INtC1c2FnTRL1_NtC1a1hRL0_eEEp6OutputuNtC1c4SendEL_E",
         "a::f::<dyn for<'a, 'b> c::Fn<(&'a a::h, &'b str), Output = ()> + c::Send>"),
        ("_RINvC1a1fDNtC1a1tEL_E", "a::f::<dyn a::t>"),
        ("_RNSC1a6vtable", "a::{shim:vtable#0}"),
        ("_RNvC7mycrateu8gdel_5qa", "mycrate::gödel"),
        ("_RNvYNtC1a1bNtC1a1t1m", "<a::b as a::t>::m"),
    ],
)  # fmt: skip
def test_names(name: str, text: str) -> None:
    assert rust_names_demangle(name) == text


@each_row(
    "name",
    ["_R", "_RN", "_RNvC1a", "_RNvC9a1b", "_RB_", "_RNvB9_1a", "_RNv-1a1b", "_RC1é", "_RC1aX", "_RINvC1a1fKx", "_RZ",
     "_RINvC1a1fKj" + "1" * 40 + "_E", "_RINvC1a1fRL0_hE", "_RINvC1a1fDG" + "z" * 9 + "_EL_E", "_RCu2__",
     "_RINvC1a1f" + "R" * 9000 + "hE", "_RINvC1a1fDNtC1a1tEE"],
)  # fmt: skip
def test_malformed_names(name: str) -> None:
    with pytest.raises(MalformedNameError):
        rust_names_demangle(name)
