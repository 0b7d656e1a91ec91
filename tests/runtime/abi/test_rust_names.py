"""pytrace.runtime.abi.rust_names: each part of the grammar; texts are those of ``std::backtrace`` and of binutils."""

from __future__ import annotations

import pytest

from pytrace.runtime.abi.rust_names import MalformedNameError, demangle
from tests.support.rows import each_row

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
    assert demangle(name) == text


@each_row(
    "name",
    ["_R", "_RN", "_RNvC1a", "_RNvC9a1b", "_RB_", "_RNvB9_1a", "_RNv-1a1b", "_RC1é", "_RC1aX", "_RINvC1a1fKx", "_RZ",
     "_RINvC1a1fKj" + "1" * 40 + "_E", "_RINvC1a1fRL0_hE", "_RINvC1a1fDG" + "z" * 9 + "_EL_E", "_RCu2__",
     "_RINvC1a1f" + "R" * 9000 + "hE", "_RINvC1a1fDNtC1a1tEE"],
)  # fmt: skip
def test_malformed_names(name: str) -> None:
    with pytest.raises(MalformedNameError):
        demangle(name)
