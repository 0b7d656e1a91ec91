"""pytrace.runtime.binaries.dwarf_parameters: parameters at the entry by the calling convention, where DWARF has a
later place."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from pytrace.core.kernel_info import UserParameter
from pytrace.runtime.binaries.user_binary import UserBinaries
from tests.support.compile import compiled

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="places are those of x86-64")


def _places(path: Path, pattern: str) -> dict[str, str]:
    binaries = UserBinaries()
    (symbol,) = binaries.binary(str(path)).functions(pattern)
    found = binaries.parameters(str(path), symbol.name)
    assert found is not None
    return {item.name: _shown(item) for item in found}


def _shown(item: UserParameter) -> str:
    parts = " ".join(f"{part.offset}:{part.register}" for part in item.parts)
    return " ".join(filter(None, (item.location, parts, *(f"-{name}" for name in item.lost))))


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_results_in_memory_take_a_register(level: str, tmp_path: Path) -> None:
    text = """
    struct big { long a[4]; }; struct two { long a, b; };
    __attribute__((noinline)) struct big make(int n, long m) { struct big b = {{n, m, 3, 4}}; return b; }
    __attribute__((noinline)) struct two pair(int n, long m) { struct two b = {n, m}; return b; }
    int main(int c, char **v) { return make(c, 7).a[1] + pair(c, 8).b; }
    """
    path = compiled(tmp_path, "results", text, "-g", level)
    assert _places(path, "make") == {"n": "si", "m": "dx"}
    assert _places(path, "pair") == {"n": "di", "m": "si"}


def test_structs_by_value(tmp_path: Path) -> None:
    text = """
    struct small { int a, b; }; struct two { long a, b; };
    struct mixed { double d; long n; }; struct floats { double d; };
    __attribute__((noinline)) long take(struct small s, struct two t, struct mixed m, struct floats f, int n,
                                        struct two u, int last) {
        return s.a + t.a + m.n + (long)f.d + n + u.a + last;
    }
    int main(void) {
        struct small s = {1, 2}; struct two t = {3, 4}; struct mixed m = {5, 6}; struct floats f = {7};
        return (int)take(s, t, m, f, 8, t, 9);
    }
    """
    # The last struct finds one register and needs two: it is in memory, and the number behind it takes the register.
    path = compiled(tmp_path, "structs", text, "-g", "-O0")
    assert _places(path, "take") == {
        "s": "di", "t": "0:si 8:dx", "m": "8:cx -d", "f": "-", "n": "r8", "u": "sp+8", "last": "r9",
    }  # fmt: skip


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.needs("clang"))])
def test_floating_point_numbers(compiler: str, tmp_path: Path) -> None:
    """Each of the registers is for one argument; those after them are in memory, as long ones are."""
    text = """
    #include <complex.h>
    struct three { float x; float y; int n; }; struct long_one { long double l; };
    typedef float vector __attribute__((vector_size(16)));
    __attribute__((noinline)) long many(double a, double b, complex double c, float d, long double e, vector f,
                                        complex float g, int n, double h, double i, struct three s, int o, int p,
                                        int q, int r, struct long_one l, long t) {
        return (long)(a + b + creal(c) + d + e + f[0] + crealf(g) + n + h + i + s.n + o + p + q + r + l.l + t);
    }
    int main(void) {
        struct three s = {1, 2, 3}; struct long_one l = {4}; vector f = {1};
        return (int)many(1, 2, 3, 4, 5, f, 6, 7, 8, 9, s, 10, 11, 12, 13, l, 14);
    }
    """
    # Registers: a, b, c (two), d, f, g, h. In memory: e, i, s (8 bytes of floating-point numbers), l, t.
    path = compiled(tmp_path, "numbers", text, "-g", "-O0", compiler=compiler)
    assert _places(path, "many") == {
        **dict.fromkeys("abcdfgh", "-"), "e": "sp+8", "n": "di", "i": "sp+24", "s": "sp+32", "o": "si", "p": "dx",
        "q": "cx", "r": "r8", "l": "sp+56", "t": "r9",
    }  # fmt: skip


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_classes_that_must_not_be_copied_are_passed_by_reference(compiler: str, tmp_path: Path) -> None:
    text = """
    #include <string>
    struct Plain { int a, b; };
    struct Owner { int a, b; ~Owner() { a = 0; } };
    struct Copied { int a; Copied(int n) : a(n) {} Copied(const Copied &other) : a(other.a + 1) {} };
    struct Virtual { int a = 1; virtual int f() { return a; } };
    struct Holder { int a; Owner inner; };
    struct Simple { int a; Simple() = default; Simple(const Simple &) = default; };
    int take(Owner o, int n, Plain p, std::string s, Virtual v) { return o.b + n + p.b + (int)s.size() + v.f(); }
    int more(Copied c, Holder h, Simple i) { return c.a + h.a + i.a; }
    Owner give(int n) { return Owner{n, n}; }
    int main() {
        return take(Owner{1, 2}, 3, Plain{4, 5}, "hello", Virtual()) + more(Copied(1), Holder{}, Simple{}) + give(1).a;
    }
    """
    path = compiled(tmp_path, "classes", text, "-g", "-O0", compiler=compiler, language="c++")
    assert _places(path, "_Z4take*") == {"o": "di+0", "n": "si", "p": "dx", "s": "cx+0", "v": "r8+0"}
    assert _places(path, "_Z4more*") == {"c": "di+0", "h": "si+0", "i": "dx"}
    assert _places(path, "_Z4give*") == {"n": "si"}


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.needs("clang"))])
def test_what_the_compiler_made_constant(compiler: str, tmp_path: Path) -> None:
    text = """
    #include <stdio.h>
    __attribute__((noinline)) static int work(int a, const char *s, long b, unsigned char c, _Bool d) {
        printf("%d %s %ld %d %d\\n", a, s, b, c, d);
        return a;
    }
    int main(int argc, char **argv) { return work(argc, argv[0], -7, 200, 1) + work(argc + 1, argv[0], -7, 200, 1); }
    """
    path = compiled(tmp_path, compiler, text, "-g", "-O2", compiler=compiler)
    found = _places(path, "work*")
    assert (found["b"], found["c"], found["d"]) == (f"={2**64 - 7}", "=200", "=1")
    assert (found["a"], found["s"]) == ("di", "si")
