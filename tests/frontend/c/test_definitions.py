"""C definitions of a script, completed by the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelHeaders
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, Array, Enum, Pointer, Struct
from pytrace.frontend.expand import c_definitions
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.syntax import nodes, parser
from pytrace.runtime.machine import kernel_headers
from tests.frontend.c.reading import fields, good
from tests.support.facts import LIST, TASK, RecordedKernel
from tests.support.front import analyse
from tests.support.headers import build_tree, debian_headers, source_tree


def test_kernel_types_are_behind_the_scripts() -> None:
    found = good("struct task_struct { long mine; };")
    own = found.struct("struct", "task_struct")
    assert own is not None
    assert (own.size, own.origin) == (8, "script")
    assert found.struct("struct", "list_head") == LIST
    assert found.typedef("pid_t") == INT32
    assert found.enum("pid_type") is not None
    assert found.struct("struct", "nothing") is None


def test_kernel_types_inside_a_script_struct() -> None:
    struct = good("struct e { struct list_head l; u64 t; struct task_struct *task; char c[PIDTYPE_MAX]; };").struct(
        "struct", "e"
    )
    assert struct is not None
    assert fields(struct)[:2] == [("l", "struct list_head", 0, 0, 0), ("t", "uint64", 16, 0, 0)]
    assert struct.fields[0].type == LIST
    assert [item.type for item in struct.fields][2:] == [Pointer(TASK), Array(INT8, 4)]


SCHED = """
#include <linux/types.h>
#define TASK_RUNNING 0x00000000
#define TASK_UNINTERRUPTIBLE 0x00000002
#define TASK_NOLOAD 0x00000400
#define TASK_IDLE (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)
#define ___GFP_IO 0x40u
#define __GFP_IO ((__force gfp_t)___GFP_IO)
#define BIT(n) (1UL << (n))
#define FLAG BIT(40)
#define current get_current()
#define NAME "sched"
struct task_struct { long other; int layout; };
struct only_here { struct list_head list; int x; union inner { int a; long b; } u; };
enum sched_kind { KIND_ONE = 1, KIND_TWO };
enum pid_type { PIDTYPE_PID, PIDTYPE_OTHER = 77 };
"""
TYPES = """
typedef unsigned gfp_t;
#define __force
struct list_head { struct list_head *next, *prev, *third; };
"""


IN = """
enum { IPPROTO_IP = 0,
#define IPPROTO_IP IPPROTO_IP
  IPPROTO_TCP = 6,
#define IPPROTO_TCP IPPROTO_TCP
};
enum shut { SHUT_RD, SHUT_WR };
#define RCV_SHUTDOWN SHUT_WR
#define OTHER_NUMBER 5
#define SAME_NUMBER OTHER_NUMBER
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return build_tree(source_tree(tmp_path / "tree", linux__sched_h=SCHED, linux__types_h=TYPES))


def headers(tree: Path) -> KernelHeaders:
    return kernel_headers.described(str(tree), str(tree), "x86_64")


def read(text: str, tree: Path | None, body: str = "", **options: object) -> tuple[Definitions, Diagnostics]:
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", f"{text}\nbegin {{ {body} }}"), diagnostics)
    diagnostics.check()
    kernel = RecordedKernel(**({"kernel_headers": headers(tree)} if tree is not None else {}))
    return c_definitions.read(program, CompileOptions(**options), kernel, diagnostics), diagnostics  # type: ignore[arg-type]


def good_with(text: str, tree: Path | None, body: str = "", **options: object) -> Definitions:
    found, diagnostics = read(text, tree, body, **options)
    assert not diagnostics.items, diagnostics.items
    return found


def constant(found: Definitions, name: str) -> object:
    return getattr(found.macro(name), "value", None)


# ---- macros


@pytest.mark.parametrize("asked", [False, True])
def test_macros_are_what_c_makes_of_them(tree: Path, asked: bool) -> None:
    """Also those that no word of the script asks for: macros of a header of the script's own need them."""
    names = {"TASK_RUNNING": 0, "__GFP_IO": 64, "FLAG": 1 << 40, "CONFIG_BUILT": 1}
    found = good_with("#include <linux/sched.h>", tree, "".join(f"print({name});" for name in names) if asked else "")
    assert {name: constant(found, name) for name in names} == names
    assert constant(found, "NAME") == b"sched"
    assert found.macro("NO_SUCH") is None
    assert found.macro("BIT") is None


def test_expressions_of_macros(tree: Path) -> None:
    found = good_with("#include <linux/sched.h>", tree, "print(TASK_IDLE); print(current);")
    assert constant(found, "TASK_IDLE") == 0x402
    # Not a number in C: the language makes of it what it can.
    assert isinstance(found.macro("current"), nodes.Call)


def test_a_macro_that_is_no_number_does_not_spoil_others(tree: Path) -> None:
    (tree / "include/linux/odd.h").write_text(
        "#define EMPTY\n#define OPEN (\n#define TEXT 1 2 3\n#define VARIABLE some_variable\n#define ODD 5\n"
        "#define BIG 0xffffffffffffffffUL\n#define BELOW (-5L)\n#define CLOSE }\n#define LAST (int)6\n"
    )
    body = "print((EMPTY, OPEN, TEXT, VARIABLE, ODD, BIG, BELOW, CLOSE, LAST));"
    found = good_with("#include <linux/odd.h>", tree, body)
    names = ("EMPTY", "ODD", "BIG", "BELOW", "LAST")
    assert [constant(found, name) for name in names] == [None, 5, (1 << 64) - 1, -5, 6]


def test_a_scripts_own_macro_counts(tree: Path) -> None:
    text = "#include <linux/sched.h>\n#undef TASK_RUNNING\n#define TASK_RUNNING 9"
    found = good_with(text, tree, "print(TASK_RUNNING);")
    assert constant(found, "TASK_RUNNING") == 9


def test_macros_of_the_compiler_are_none(tree: Path) -> None:
    found = good_with("#include <linux/sched.h>", tree, "print((linux, unix, __x86_64__));")
    assert [found.macro(name) for name in ("linux", "unix", "__x86_64__")] == [None, None, None]
    assert "linux" not in found.names("macro")
    assert "TASK_RUNNING" in found.names("macro")


# ---- types


def test_btf_says_more_than_headers(tree: Path) -> None:
    found = good_with("#include <linux/sched.h>\nstruct own { struct list_head l; struct task_struct *t; };", tree)
    assert found.struct("struct", "task_struct") == TASK
    assert found.struct("struct", "list_head") == LIST
    own = found.struct("struct", "own")
    assert own is not None
    assert own.fields[0].type == LIST


def test_types_that_only_headers_have(tree: Path) -> None:
    found = good_with("#include <linux/sched.h>", tree)
    only = found.struct("struct", "only_here")
    assert only is not None
    assert only.fields[0].type == LIST
    inner = found.struct("union", "inner")
    assert isinstance(inner, Struct)
    assert inner.size == 8
    assert found.struct("struct", "nothing") is None
    enum = found.enum("sched_kind")
    assert isinstance(enum, Enum)
    assert found.enumerator("KIND_TWO") == (enum, 2)
    assert found.typedef("gfp_t") is not None
    assert "only_here" in found.names("struct")


def test_enumerators_of_headers(tree: Path) -> None:
    """A header that was included says which of several things of one name is meant; types come from BTF."""
    found = good_with("#include <linux/sched.h>", tree)
    of_btf = found.kernel.enum("pid_type")
    assert found.enum("pid_type") == of_btf
    assert found.enumerator("PIDTYPE_PID") == (of_btf, 0)
    other = found.enumerator("PIDTYPE_OTHER")
    assert other is None or other[1] == 77


# ---- when they are searched


def test_only_where_a_kernel_header_is_included(tree: Path) -> None:
    """The C library's headers and the kernel's define the same types differently."""
    found = good_with("#include <stdint.h>\n#define N 1", tree)
    assert found.kernel_files == []
    found = good_with("#include <linux/types.h>", tree)
    assert f"{tree}/include/linux/types.h" in found.kernel_files
    assert good_with("struct x { int y; };", tree).kernel_files == []


def test_a_header_of_the_scripts_own_includes_one(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("#include <linux/sched.h>\n#define MINE (TASK_IDLE + FLAG)\n")
    found = good_with('#include "mine.h"', tree, "print(MINE);", include_directories=(str(tmp_path),))
    assert f"{tree}/include/linux/sched.h" in found.kernel_files
    assert constant(found, "__GFP_IO") == 64
    found = good_with("", tree, "print(TASK_IDLE);", includes=(str(tmp_path / "mine.h"),))
    assert constant(found, "TASK_IDLE") == 0x402


def test_headers_that_were_read_are_noted(tree: Path) -> None:
    found = good_with("#include <linux/sched.h>", tree)
    kernel = found.kernel
    assert isinstance(kernel, RecordedKernel)
    for name in ("linux/sched.h", "linux/types.h", "linux/kconfig.h", "generated/autoconf.h"):
        assert f"{tree}/include/{name}" in kernel.read_files


def test_wrong_variables_are_told_where_headers_are_included(tmp_path: Path) -> None:
    wrong = kernel_headers.find("none", "x86_64", {"BPFTRACE_KERNEL_SOURCE": str(tmp_path)}, str(tmp_path))
    for text, expected in (("#include <linux/sched.h>", 1), ("#include <stdint.h>", 0)):
        diagnostics = Diagnostics()
        program = parser.parse(Source("stdin", f"{text}\nbegin {{ }}"), diagnostics)
        c_definitions.read(program, CompileOptions(), RecordedKernel(kernel_headers=wrong), diagnostics)
        assert ["BPFTRACE_KERNEL_SOURCE" in item.message for item in diagnostics.warnings] == [True] * expected


# ---- headers that cannot be read whole


def test_mistakes_in_kernel_headers_are_passed_over(tree: Path) -> None:
    (tree / "include/linux/broken.h").write_text(
        "#include <generated/not-made.h>\n#include <linux/not-there.h>\nstruct new_syntax { int %% x; };\n"
        "nosuch_type function(void) { return %; }\n#define AFTER 7\nstruct after { int x; };\n"
    )
    found = good_with("#include <linux/broken.h>\nstruct mine { struct after a; };", tree, "print(AFTER);")
    assert constant(found, "AFTER") == 7
    mine = found.struct("struct", "mine")
    assert mine is not None
    assert mine.size == 4
    assert found.skipped("a macro of") == [] or "broken.h:" in found.skipped("a macro of")[-1]


def test_mistakes_of_the_script_are_told_still(tree: Path) -> None:
    _, diagnostics = read("#include <linux/sched.h>\nstruct mine { nosuch_t a; };\n#include <linux/no-such.h>", tree)
    (error,) = diagnostics.errors
    assert error.span.text == "nosuch_t"
    assert any("it may be defined in linux/no-such.h, which is not installed" in hint for hint in error.hints)


def test_definitions_that_a_header_repeats(tree: Path) -> None:
    """Scripts that define a kernel type by themselves before a header does: the script's counts."""
    found = good_with("struct only_here { char mine; };\n#include <linux/sched.h>", tree, "print(TASK_IDLE);")
    mine = found.struct("struct", "only_here")
    assert mine is not None
    assert mine.size == 1
    assert constant(found, "TASK_IDLE") == 0x402


# ---- Debian's packages


REAL = """
#include <linux/sched.h>
#include <linux/socket.h>
#include <linux/fs.h>
#include <linux/blkdev.h>
#include <net/sock.h>
#include <net/tcp_states.h>
#include <sys/types.h>
"""


@pytest.mark.needs("headers")
def test_headers_of_a_distribution() -> None:
    names = {
        "TASK_RUNNING": 0, "TASK_UNINTERRUPTIBLE": 2, "AF_INET": 2, "AF_INET6": 10, "EPERM": 1, "ENOENT": 2,
        "GFP_KERNEL": 0xCC0, "O_CREAT": 0o100, "S_IFREG": 0o100000, "FMODE_READ": 1, "PF_KTHREAD": 0x200000,
    }  # fmt: skip
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", f"{REAL}begin {{ print(({', '.join(names)})); }}"), diagnostics)
    kernel = RecordedKernel(kernel_headers=debian_headers())
    found = c_definitions.read(program, CompileOptions(), kernel, diagnostics)
    assert not diagnostics.items, diagnostics.items
    assert {name: constant(found, name) for name in names} == names
    established = found.enumerator("TCP_ESTABLISHED")
    assert established is not None
    assert established[1] == 1
    sock = found.struct("struct", "sock")
    assert sock is not None
    assert sock.find("__sk_common") is not None
    assert len(found.kernel_files) > 300


@pytest.mark.parametrize("name", ["IPPROTO_TCP", "RCV_SHUTDOWN"])
def test_an_enumerator_with_a_macro_keeps_its_type(tmp_path: Path, name: str) -> None:
    """``#define IPPROTO_TCP IPPROTO_TCP`` beside the enumerator, so that programs can ask with ``#ifdef``."""
    folder = source_tree(tmp_path / "tree", linux__in_h=IN, linux__types_h=TYPES)
    text = f"#include <linux/in.h>\nbegin {{ print({name}); }}"
    kernel = RecordedKernel(kernel_headers=headers(build_tree(folder)))
    result = analyse(text, kernel=kernel).checked()
    call = next(x for x in nodes.walk(result.units[0].body) if isinstance(x, nodes.Call))
    assert isinstance(call.args[0], nodes.Expr)
    assert isinstance(result.types[call.args[0]], Enum)
    assert result.types[call.args[0]].size == 4


def test_a_macro_of_a_macro_is_a_number(tmp_path: Path) -> None:
    folder = source_tree(tmp_path / "tree", linux__in_h=IN, linux__types_h=TYPES)
    found = good_with("#include <linux/in.h>", build_tree(folder), body="print(SAME_NUMBER);")
    assert constant(found, "SAME_NUMBER") == 5
