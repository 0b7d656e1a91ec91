"""C definitions of a script: types, constants, and what libclang is asked."""

from __future__ import annotations

import ast
import os
import sys
from functools import cache
from pathlib import Path

import pytest
from clang import cindex
from generating import constants as generator

from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import KernelHeaders
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, UINT64, Array, Enum, Pointer, Struct, Void
from pytrace.frontend.expand import c_definitions, c_translation
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.syntax import nodes, parser
from pytrace.runtime.machine import kernel_headers
from tests.support.facts import LIST, TASK, RecordedKernel
from tests.support.front import analyse
from tests.support.headers import build_tree, debian_headers, source_tree
from tests.support.rows import each_row


def read(
    text: str, kernel: RecordedKernel | None = None, body: str = "", **options: object
) -> tuple[Definitions, Diagnostics]:
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", f"{text}\nbegin {{ {body} }}"), diagnostics)
    diagnostics.check()
    found = c_definitions.read(program, CompileOptions(**options), kernel or RecordedKernel(), diagnostics)  # type: ignore[arg-type]
    return found, diagnostics


def good(text: str, kernel: RecordedKernel | None = None, body: str = "", **options: object) -> Definitions:
    found, diagnostics = read(text, kernel, body, **options)
    assert not diagnostics.items, diagnostics.items
    return found


def struct(found: Definitions, name: str, kind: str = "struct") -> Struct:
    defined = found.struct(kind, name)
    assert defined is not None
    return defined


def constant(found: Definitions, name: str) -> object:
    return getattr(found.macro(name), "value", None)


# ---------------------------------------------------------------------------------------------------------- definitions


def test_kernel_types_are_behind_the_scripts() -> None:
    found = good("struct task_struct { long mine; };")
    own = struct(found, "task_struct")
    assert (own.size, own.origin) == (8, "script")
    assert found.struct("struct", "list_head") == LIST
    assert found.typedef("pid_t") == INT32
    assert found.enum("pid_type") is not None
    assert found.struct("struct", "nothing") is None


def test_kernel_types_inside_a_script_struct() -> None:
    found = struct(good("struct e { struct list_head l; u64 t; struct task_struct *task; char c[PIDTYPE_MAX]; };"), "e")
    assert [(item.name, item.type, item.offset) for item in found.fields] == [
        ("l", LIST, 0), ("t", UINT64, 16), ("task", Pointer(TASK), 24), ("c", Array(INT8, 4), 32),
    ]  # fmt: skip


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


def good_with(text: str, tree: Path, body: str = "", **options: object) -> Definitions:
    return good(text, RecordedKernel(kernel_headers=headers(tree)), body, **options)


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


def test_macros_of_the_script_and_of_the_compiler(tree: Path) -> None:
    text = "#include <linux/sched.h>\n#undef TASK_RUNNING\n#define TASK_RUNNING 9"
    found = good_with(text, tree, "print(TASK_RUNNING);")
    assert constant(found, "TASK_RUNNING") == 9
    found = good_with("#include <linux/sched.h>", tree, "print((linux, unix, __x86_64__));")
    assert [found.macro(name) for name in ("linux", "unix", "__x86_64__")] == [None, None, None]
    assert "linux" not in found.names("macro")
    assert "TASK_RUNNING" in found.names("macro")


# ---- types


def test_btf_says_more_than_headers(tree: Path) -> None:
    found = good_with("#include <linux/sched.h>\nstruct own { struct list_head l; struct task_struct *t; };", tree)
    assert found.struct("struct", "task_struct") == TASK
    assert found.struct("struct", "list_head") == LIST
    assert struct(found, "own").fields[0].type == LIST


def test_types_that_only_headers_have(tree: Path) -> None:
    found = good_with("#include <linux/sched.h>", tree)
    assert struct(found, "only_here").fields[0].type == LIST
    assert struct(found, "inner", "union").size == 8
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
        _, diagnostics = read(text, RecordedKernel(kernel_headers=wrong))
        assert ["BPFTRACE_KERNEL_SOURCE" in item.message for item in diagnostics.warnings] == [True] * expected


# ---- headers that cannot be read whole


def test_mistakes_in_kernel_headers_are_passed_over(tree: Path) -> None:
    (tree / "include/linux/broken.h").write_text(
        "#include <generated/not-made.h>\n#include <linux/not-there.h>\nstruct new_syntax { int %% x; };\n"
        "nosuch_type function(void) { return %; }\n#define AFTER 7\nstruct after { int x; };\n"
    )
    found = good_with("#include <linux/broken.h>\nstruct mine { struct after a; };", tree, "print(AFTER);")
    assert constant(found, "AFTER") == 7
    assert struct(found, "mine").size == 4
    assert found.skipped("a macro of") == [] or "broken.h:" in found.skipped("a macro of")[-1]


def test_mistakes_of_the_script_are_told_still(tree: Path) -> None:
    text = "#include <linux/sched.h>\nstruct mine { nosuch_t a; };\n#include <linux/no-such.h>"
    _, diagnostics = read(text, RecordedKernel(kernel_headers=headers(tree)))
    (error,) = diagnostics.errors
    assert error.span.text == "nosuch_t"
    assert any("it may be defined in linux/no-such.h, which is not installed" in hint for hint in error.hints)


def test_definitions_that_a_header_repeats(tree: Path) -> None:
    """Scripts that define a kernel type by themselves before a header does: the script's counts."""
    found = good_with("struct only_here { char mine; };\n#include <linux/sched.h>", tree, "print(TASK_IDLE);")
    assert struct(found, "only_here").size == 1
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
    found = good(REAL, RecordedKernel(kernel_headers=debian_headers()), f"print(({', '.join(names)}));")
    assert {name: constant(found, name) for name in names} == names
    established = found.enumerator("TCP_ESTABLISHED")
    assert established is not None
    assert established[1] == 1
    assert struct(found, "sock").find("__sk_common") is not None
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


# ------------------------------------------------------------------------------------------------------------ constants

EXAMPLES = {
    "TASK_RUNNING": 0, "TASK_INTERRUPTIBLE": 1, "TASK_UNINTERRUPTIBLE": 2, "EXIT_ZOMBIE": 0x20,
    "AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "EPERM": 1, "ENOENT": 2, "ERESTARTSYS": 512,
    "O_WRONLY": 1, "O_CREAT": 0o100, "O_DIRECT": 0o40000, "S_IFMT": 0o170000, "S_IFREG": 0o100000, "S_IFSOCK": 0o140000,
    "TCP_ESTABLISHED": 1, "TCP_LISTEN": 10, "TCPF_LISTEN": 1 << 10, "SOCK_STREAM": 1, "IPPROTO_TCP": 6, "SIGKILL": 9,
    "GFP_KERNEL": 0xCC0, "__GFP_ZERO": 0x100, "REQ_OP_READ": 0, "REQ_OP_WRITE": 1, "REQ_OP_MASK": 0xFF,
    "PROT_EXEC": 4, "MAP_SHARED": 1, "MAP_ANONYMOUS": 0x20, "FUTEX_WAIT": 0, "FUTEX_CMD_MASK": -385,
    "CAP_SYS_ADMIN": 21, "CLONE_NEWNS": 0x20000, "EXT4_SUPER_MAGIC": 0xEF53,
    "PF_KTHREAD": 0x200000, "PF_EXITING": 4, "POLLIN": 1, "EPOLLIN": 1, "IOPRIO_CLASS_SHIFT": 13, "AT_FDCWD": -100,
    "FMODE_WRITE": 2, "ETH_P_IP": 0x800, "IFF_UP": 1, "NSEC_PER_SEC": 10**9, "PATH_MAX": 4096, "PAGE_SIZE": 4096,
    "MSG_DONTWAIT": 0x40, "NET_RX_SOFTIRQ": 3, "VM_EXEC": 4, "SECTOR_SHIFT": 9, "MINORBITS": 20,
    "DT_REG": 8, "DT_DIR": 4, "DT_SOCK": 12, "FALLOC_FL_PUNCH_HOLE": 2, "RESOLVE_BENEATH": 8, "GRND_NONBLOCK": 1,
    "IPC_CREAT": 0o1000, "SHM_RDONLY": 0o10000, "EFD_CLOEXEC": 0o2000000, "TFD_TIMER_ABSTIME": 1, "SPLICE_F_MOVE": 1,
    "MNT_DETACH": 2, "TCGETS": 0x5401, "POSIX_FADV_DONTNEED": 4, "UTIME_OMIT": (1 << 30) - 2,
    "CLOSE_RANGE_CLOEXEC": 4, "KVM_EXIT_HLT": 5, "EXIT_REASON_HLT": 12, "KEY_ENTER": 28, "EV_KEY": 1,
    "KEYCTL_READ": 11, "PERF_TYPE_SOFTWARE": 1, "BPF_PROG_LOAD": 5, "AT_SECURE": 23, "INT_MAX": 2**31 - 1, "F_OK": 0,
    "R_OK": 4, "MAP_ANON": 0x20, "O_ASYNC": 0o20000, "SCHED_OTHER": 0, "TH_SYN": 2, "PIPE_BUF": 4096,
    "UNIX_PATH_MAX": 108,
}  # fmt: skip


def test_what_scripts_use() -> None:
    kernel = RecordedKernel()
    assert {name: c_translation.constant_value(name, kernel) for name in EXAMPLES} == EXAMPLES
    assert c_translation.constant_value("NO_SUCH", kernel) is None
    assert set(EXAMPLES) < set(c_translation.constant_names(kernel))


NAMES = (*c_translation.tables().values, "GFP_ATOMIC")


@cache
def own() -> dict[str, int]:
    return generator.own_constants(debian_headers(), NAMES)


@cache
def for_programs(machine: str) -> dict[str, int]:
    return generator.user_constants(debian_headers(), machine, NAMES)


@pytest.mark.needs("headers")
def test_values_are_those_of_a_kernels_headers() -> None:
    """All of them, of Debian's 6.1."""
    expected = {**for_programs("x86_64"), **own()}
    shipped = {name: c_translation.constant_value(name, RecordedKernel(release="6.1.0")) for name in NAMES}
    wrong = {name: value for name, value in shipped.items() if expected.get(name, value) != value}
    assert wrong == {}, {name: expected[name] for name in wrong}
    # Some came after 6.1, not most.
    assert len(set(shipped) - set(expected)) < len(shipped) // 10


@pytest.mark.parametrize("machine", generator.MACHINES)
@pytest.mark.needs("headers")
def test_values_of_machines(machine: str) -> None:
    of_x86, expected = for_programs("x86_64"), for_programs(machine)
    kernel = RecordedKernel(arch=machine)
    # Names that the kernel's own headers have with other values are the kernel's.
    names = [
        name for name in c_translation.constant_names(kernel)
        if name in expected and name in of_x86 and own().get(name, of_x86[name]) == of_x86[name]
    ]  # fmt: skip
    assert len(names) > 1000
    wrong = {name: value for name in names if (value := c_translation.constant_value(name, kernel)) != expected[name]}
    assert wrong == {}, {name: expected[name] for name in wrong}


def test_machines_differ() -> None:
    kernels = {machine: RecordedKernel(arch=machine) for machine in ("x86_64", "arm64")}
    values = {machine: c_translation.constant_value("O_DIRECTORY", kernel) for machine, kernel in kernels.items()}
    assert values == {"x86_64": 0o200000, "arm64": 0o40000}
    assert c_translation.constant_value("PAGE_SIZE", RecordedKernel(arch="aarch64")) is None
    assert "PAGE_SIZE" not in c_translation.constant_names(RecordedKernel(arch="aarch64"))
    assert c_translation.constant_value("SIGKILL", RecordedKernel(arch="vax")) is None
    assert c_translation.constant_names(RecordedKernel(arch="vax")) == []


def test_kernels_differ() -> None:
    assert c_translation.constant_value("GFP_ATOMIC", RecordedKernel(release="5.10.0-8-amd64")) == 0xA20
    assert c_translation.constant_value("GFP_ATOMIC", RecordedKernel(release="6.18.44")) == 0x820


class Numbering(RecordedKernel):
    """A kernel that numbers its flags in another way."""

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        enum = Enum("req_flag_bits", 4, False, (("__REQ_SYNC", 30), ("___GFP_ZERO_BIT", 31)))
        value = dict(enum.members).get(name)
        return (enum, value) if value is not None else super().enumerator(name)


def test_flags_whose_bits_the_kernel_numbers() -> None:
    assert c_translation.constant_value("REQ_SYNC", Numbering()) == 1 << 30
    assert c_translation.constant_value("__GFP_ZERO", Numbering()) == 1 << 31
    assert c_translation.constant_value("REQ_META", Numbering()) == c_translation.tables().values["REQ_META"]


# ---- what comes first


def messages(text: str, kernel: RecordedKernel | None = None) -> list[tuple[str, tuple[str, ...]]]:
    result = analyse(text, kernel=kernel)
    return [(item.message, item.hints) for item in result.diagnostics.errors]


def test_order(tmp_path: Path) -> None:
    tree = build_tree(source_tree(tmp_path, linux__sched_h="#define TASK_DEAD 5555\nenum { TASK_NEW = 6666 };\n"))
    headers = kernel_headers.described(str(tree), str(tree), "x86_64")
    asserted = 'begin {{ static_assert({0} == {1}, "{0}"); }}'
    for text, name, value in (
        ("", "TASK_DEAD", 0x80),
        ("#include <linux/sched.h>\n", "TASK_DEAD", 5555),
        ("#include <linux/sched.h>\n", "TASK_NEW", 6666),
        ("#include <linux/sched.h>\n", "TASK_WAKING", 0x200),
        ("#include <linux/sched.h>\n#undef TASK_DEAD\n#define TASK_DEAD 7\n", "TASK_DEAD", 7),
        ("#define TASK_DEAD 8\n", "TASK_DEAD", 8),
        ("enum mine { TASK_DEAD = 9 };\n", "TASK_DEAD", 9),
    ):
        kernel = RecordedKernel(kernel_headers=headers)
        assert messages(text + asserted.format(name, value), kernel) == [], (text, name)


def test_the_kernels_enumerators_come_first() -> None:
    class Known(RecordedKernel):
        def enumerator(self, name: str) -> tuple[Enum, int] | None:
            return (Enum("x", 4, False, (("TCP_LISTEN", 44),)), 44) if name == "TCP_LISTEN" else None

    assert messages('begin { static_assert(TCP_LISTEN == 44, "x"); }', Known()) == []


def test_names_of_the_script_are_not_touched() -> None:
    text = 'macro EPERM() { 77 }\nbegin { static_assert(EPERM == 77, "x"); @AF_INET = 1; $O_RDWR = 2; @x = $O_RDWR; }'
    assert messages(text) == []
    found, _ = read("#include <linux/none-such.h>\nstruct s { char path[PATH_MAX]; };")
    assert struct(found, "s").size == 4096
    ((message, hints),) = messages("begin { print(TASK_RUNING); }")
    assert message == "unknown name 'TASK_RUNING'"
    assert "'TASK_RUNNING'" in hints[0]
    assert len(hints) == 1


# ---- messages


ABSENT = "it may be a macro of linux/none-such.h or net/none-such.h, which are not installed"
INCLUDES = "#include <linux/none-such.h>\n#include <net/none-such.h>\n"


@pytest.mark.parametrize("name", ["SOME_MACRO_OF_IT", "some_macro_of_it"])
def test_a_header_that_was_skipped_is_named(name: str) -> None:
    ((message, hints),) = messages(f"{INCLUDES}begin {{ print({name}); }}")
    assert message == f"unknown name {name!r}"
    assert hints[0] == ABSENT
    assert "PYTRACE_KERNEL_SOURCE" in hints[1]


def test_types_of_a_header_that_was_skipped() -> None:
    for text in ("(struct some_thing_of_it *)0", "(some_type_of_it)0", "sizeof(struct some_thing_of_it)"):
        ((_, hints),) = messages(f"{INCLUDES}begin {{ print({text}); }}")
        assert hints[0] == ABSENT.replace("a macro of", "defined in"), text


def test_the_hint_comes_only_where_it_applies() -> None:
    for text in (
        "begin { print(SOME_MACRO_OF_IT); }",
        "#include <stdint.h>\nbegin { print(SOME_MACRO_OF_IT); }",
        f"{INCLUDES}begin {{ print(TASK_RUNING); }}",
        f"{INCLUDES}begin {{ print(nsec); }}",
        f"{INCLUDES}begin {{ nosuch_function(1); }}",
        f"{INCLUDES}begin {{ print($undefined); }}",
        f"{INCLUDES}begin {{ print((struct task_struc *)0); }}",
    ):
        (first, *_) = messages(text)
        assert not any("not installed" in hint for hint in first[1]), (text, first)


def test_headers_of_which_only_the_part_for_programs_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux/sched.h").write_text("#define CLONE_VM 0x100\n")
    monkeypatch.setattr("pytrace.frontend.expand.c_translation.SYSTEM_HEADERS", (str(tmp_path),))
    text = '#include <linux/sched.h>\nbegin {{ static_assert(TASK_RUNNING == 0 && CLONE_VM == 256, "x"); {0} }}'
    assert messages(text.format("")) == []
    ((_, hints),) = messages(text.format("print(SOME_MACRO_OF_IT);"))
    assert "the kernel's linux/sched.h, which is not installed" in hints[0]
    assert f"{tmp_path}/linux/sched.h" in hints[0]


# --------------------------------------------------------------------------------------------------------- declarations


@each_row(
    ("text", "size", "align", "members"),
    [
        ("struct in { char c; int x; }; struct t { int a; struct in b; long d[3]; };", 40, 8,
         [("a", "int32", 0, 0, 0), ("b", "struct in", 4, 0, 0), ("d", "int64[3]", 16, 0, 0)]),
        ("struct t { char a; unsigned f:3, g:5; };", 4, 4,
         [("a", "int8", 0, 0, 0), ("f", "uint32", 0, 8, 3), ("g", "uint32", 0, 11, 5)]),
        ("struct t { char c; long x; } __attribute__((packed));", 9, 1,
         [("c", "int8", 0, 0, 0), ("x", "int64", 1, 0, 0)]),
        ("struct t { int x; } __attribute__((aligned(64)));", 64, 64, [("x", "int32", 0, 0, 0)]),
        ("struct t { int :4; int a:6; unsigned long long b:60; } __attribute__((packed));", 9, 1,
         [("a", "int32", 0, 4, 6), ("b", "uint64", 1, 2, 60)]),
        ("#include <stdint.h>\n#include <stdbool.h>\nstruct t { uint64_t a; bool b; uintptr_t c; };", 24, 8,
         [("a", "uint64", 0, 0, 0), ("b", "bool", 8, 0, 0), ("c", "uint64", 16, 0, 0)]),
        ("#include <linux/sched/mm.h>\n#include <net/sock.h>\nstruct t { struct list_head l; };", 16, 8,
         [("l", "struct list_head", 0, 0, 0)]),
    ],
)  # fmt: skip
def test_layout_as_in_c(text: str, size: int, align: int, members: list[object]) -> None:
    """The last two: headers of the compiler, and of the kernel, whose types BTF has."""
    found = struct(good(text), "t")
    assert (found.size, found.align) == (size, align)
    assert [
        (item.name, str(item.type), item.offset, item.bit_offset, item.bit_size) for item in found.fields
    ] == members


def test_members_of_unions_without_a_name() -> None:
    found = good("struct o { long a; union { int u; char v; }; struct i { int z; } in; struct { int q; } un; };")
    pair = struct(good("struct o { struct { int a; } x; struct { int b; } y; };"), "o").fields
    assert pair[0].type != pair[1].type, "each without a name is a type of its own"
    member = struct(found, "o").find("v")
    assert member is not None
    assert (member.type, member.offset) == (INT8, 8)
    first, last = struct(found, "o").fields[-2:]
    assert struct(found, "i") == first.type
    assert isinstance(last.type, Struct)
    assert last.type.find("q") is not None


def test_pointers_arrays_and_functions() -> None:
    found = struct(good(
        "struct n { struct n *next; int (*call)(int, char); char text[2][8]; void *p; const char *s; int last[]; };"
    ), "n")  # fmt: skip
    assert {item.name: item.type for item in found.fields} == {
        "next": Pointer(found), "call": Pointer(Void()), "text": Array(Array(INT8, 8), 2), "p": Pointer(Void()),
        "s": Pointer(INT8), "last": Array(INT32, 0),
    }  # fmt: skip


def test_unions_enums_and_names_of_types() -> None:
    found = good(
        "struct later; union u { int a; long b; struct later *p; }; typedef unsigned long long big_t;"
        "typedef struct { int x; } pair; enum color { RED, GREEN = 5, BLUE, BIG = 1 << 4, LOW = -1 };"
        "enum { ONE = 1, TWO }; struct o { enum e { E1 = 4 } ee; };"
    )
    assert (struct(found, "u", "union").kind, struct(found, "u", "union").size) == ("union", 8)
    assert found.struct("struct", "u") is None
    assert found.typedef("big_t") == UINT64
    assert isinstance(found.typedef("pair"), Struct)
    enum = found.enum("color")
    assert enum is not None
    assert dict(enum.members) == {"RED": 0, "GREEN": 5, "BLUE": 6, "BIG": 16, "LOW": -1}
    assert (enum.width, enum.signed) == (4, True)
    assert found.enumerator("BLUE") == (enum, 6)
    assert [(found.enumerator(name) or (None, None))[1] for name in ("TWO", "E1")] == [2, 4]


def test_macros_without_a_c_front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.frontend.expand.c_translation.translate", None)
    found = good('#define N 5 // five\n#define MSG "hi"\n#define SUM \\\n (N + 2)\n#define EMPTY')
    assert [constant(found, name) for name in ("N", "MSG", "EMPTY", "OTHER")] == [5, b"hi", None, None]
    total = found.macro("SUM")
    assert isinstance(total, nodes.Binary)
    assert isinstance(total.left, nodes.Identifier)
    assert list(found.names("macro")) == ["N", "MSG", "SUM", "EMPTY"]


PLAIN = (
    "enum a { A, B = 4, C, D = 0x10, E, };\nenum { SINGLE = 2147483647 };",
    "enum low { LOW = -2, MINUS, ZERO } ;\n#define SIZE (2 * 8)",
    """struct a {
        char c; /* one */ short s[3]; // three
        unsigned int u; const char * const_name; void **pp; long unsigned int l[2][4]; unsigned x; long long y;
        signed char last;
    };
    struct b { char one; };""",
    "struct a { struct a *next; };\nstruct b { const struct a * const_; struct b **all; };",
    "struct task_struct { int mine; };\nenum pid_type { MINE, OTHERS };",
)
NOT_PLAIN = """\
struct a { u64 x; };
struct a { int x : 3; };
struct a { int a, b; };
struct a { struct task_struct *t; };
struct a { union { int x; long y; }; };
struct a { int x; } __attribute__((packed));
struct a { int (*f)(void); };
struct a { };
struct a { int x[]; };
struct a { bool x; };
struct a;
enum a { A = 1 << 3 };
enum a { A }; enum b { B = A };
enum a { A }; | #define OTHER A
enum a { A = 010 };
enum a { A = 0x80000000 };
enum a { A, A2 = 3u };
#define N 3 | struct a { int x[N]; };
#define unsigned | enum a { A }; | struct b { unsigned int x; };
#define F(x) x
#if 1 | #endif
#include <stddef.h>
typedef int mine;""".splitlines()


@pytest.mark.parametrize("text", PLAIN)
def test_plain_definitions_are_read_as_libclang_reads_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setattr(c_translation, "translate", None)
        plain = good(text)
    with monkeypatch.context() as context:
        context.setattr(c_definitions, "_read_simple", lambda *_: False)
        expected = good(text)
    assert plain.enums == expected.enums
    assert plain.enumerators == expected.enumerators
    assert plain.structs.keys() == expected.structs.keys()
    for key, struct_ in plain.structs.items():
        other = expected.structs[key]
        assert (struct_, struct_.fields, struct_.align) == (other, other.fields, other.align)
    assert [name for name in plain.names("macro") if constant(plain, name) != constant(expected, name)] == []


@each_row("text", NOT_PLAIN)
def test_other_definitions_are_for_libclang(text: str) -> None:
    lines = text.replace(" | ", "\n")
    program = parser.parse(Source("stdin", f"{lines}\nbegin {{}}"), Diagnostics())
    assert not c_definitions._read_simple(program, Definitions(RecordedKernel()))


def test_mistakes_in_plain_definitions_are_told_by_libclang() -> None:
    for text in (
        "enum a { A, A };", "enum a { A };\nenum b { A };", "struct a { int x; int x; };",
                 "struct a { int x; };\nstruct a { int x; };", "enum a { int };", "struct a { int if; };",
    ):  # fmt: skip
        assert read(text)[1].failed, text


def test_without_libclang_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clang", None)
    monkeypatch.setitem(sys.modules, "clang.cindex", None)
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", "#define N 3\ntypedef int mine;\nbegin {}"), diagnostics)
    with pytest.raises(ScriptError):
        c_definitions.read(program, CompileOptions(), RecordedKernel(), diagnostics)
    (error,) = diagnostics.items
    assert error.span.text == "typedef int mine;"
    assert error.message == "C definitions like these, and #include, need libclang, which is not installed"
    assert "libclang" in error.hints[0]


def test_each_use_of_a_macro_is_a_new_tree() -> None:
    found = good("#define N (1 + 2)")
    assert found.macro("N") is not found.macro("N")


def test_macros_that_need_c() -> None:
    found = good(
        "#define TWICE(x) ((x) * 2)\n#define SIX TWICE(3)\n#define BIG 0x100000000ULL\n"
        '#define TEXT "a" "b\\n"\n#define SIZE ((unsigned int)sizeof(struct s))\nstruct s { int x[3]; };\n'
        "#if BIG > 0 && !defined(B)\n#define C 3\n#else\n#define C 4\n#endif"
    )
    assert [constant(found, name) for name in ("SIX", "BIG", "TEXT", "TWICE", "C")] == [6, 1 << 32, b"ab\n", None, 3]


# ----------------------------------------------------------------------------------------------------- translation unit


def test_missing_kernel_header_without_btf_is_an_error() -> None:
    _, diagnostics = read("#include <net/nothing.h>", RecordedKernel(has_btf=False))
    (error,) = diagnostics.errors
    assert "net/nothing.h" in error.message
    assert "-I" in error.hints[0]


def test_a_misspelt_kernel_header_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#include <linux/scehd.h>\n#include <linux/fs.h>\n")
    _, diagnostics = read(
        "#include <linux/sched.h>\n  #include <linux/nofile.h>\n"
        f'#include "{tmp_path}/own.h"\n#include <uapi/linux/ptrace.h>\n'
    )
    assert not diagnostics.errors
    assert [(item.message, item.span.first.line) for item in diagnostics.warnings] == [
        ("there is no header 'linux/nofile.h'", 2),
        ("there is no header 'linux/scehd.h'", 1),
    ]


def test_headers_are_found_and_noted(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("struct mine { short s; };\n#define MINE 7\n")
    kernel = RecordedKernel()
    found = good('#include "mine.h"', kernel, include_directories=(str(tmp_path),))
    assert struct(found, "mine").size == 2
    assert found.macro("MINE") is not None
    assert str(tmp_path / "mine.h") in kernel.read_files


def test_include_option_comes_first(tmp_path: Path) -> None:
    header = tmp_path / "first.h"
    header.write_text("typedef long first_t;\n")
    assert struct(good("struct s { first_t x; };", includes=(str(header),)), "s").size == 8
    assert good("", includes=(str(header),)).typedef("first_t") is not None


def test_have_btf_macro() -> None:
    text = "#ifdef BPFTRACE_HAVE_BTF\nstruct with { int x; };\n#else\nstruct without { int x; };\n#endif"
    assert good(text).struct("struct", "with") is not None
    assert good(text, RecordedKernel(has_btf=False)).struct("struct", "without") is not None


@each_row(
    ("text", "line", "place", "message"),
    [
        ("struct a { int x; };\nstruct bad {\n  nosuch_t y;\n};", 3, "nosuch_t", "nosuch_t"),
        ("struct a { int x; };\nstruct a { int y; };", 2, "a", "redefinition"),
        ("#error not here", 1, "error", "not here"),
        ('#include "mine.h"', 1, '"', "mine.h"),
    ],
)
def test_mistakes_are_told_where_they_are(text: str, line: int, place: str, message: str) -> None:
    _, diagnostics = read(text)
    first = diagnostics.errors[0]
    assert message in first.message
    assert (first.span.text, first.span.first.line) == (place, line)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def refused(text: str, **options: tuple[str, ...]) -> str:
    """The message about a header that is refused."""
    _, diagnostics = read(text, **options)  # type: ignore[arg-type]
    return next((item.message for item in diagnostics.errors if item.message.startswith("refusing")), "")


@needs_root
@pytest.mark.parametrize("named", [True, False])
def test_root_includes_no_headers_that_others_can_write(tmp_path: Path, named: bool) -> None:
    folder = tmp_path / "include"
    folder.mkdir()
    header, link = folder / "mine.h", tmp_path / "link.h"
    header.write_text("struct mine { short s; };\n")
    link.symlink_to(header)
    options = {"include_directories": (str(folder),)} if named else {}
    for path in (header, link):
        assert not refused(f'#include "{path}"', **options)
    for mode, word in ((0o777, "world"), (0o775, "group")):
        os.chown(folder, 0, 12345)
        folder.chmod(mode)
        for path in (header, link):
            assert f"{folder} is {word}-writable" in refused(f'#include "{path}"', **options)
    folder.chmod(0o755)
    header.chmod(0o666)
    assert "it is world-writable" in refused(f'#include "{header}"', **options)


@needs_root
def test_root_names_whose_headers_it_includes(tmp_path: Path) -> None:
    header = tmp_path / "mine.h"
    header.write_text("struct mine { short s; };\n")
    os.chown(header, 12345, 12345)
    text = f'#include "{header}"'
    assert "it belongs to user 12345" in refused(text)
    assert "it belongs to user 12345" in refused(text, include_directories=(str(tmp_path),))
    assert not refused(text, includes=(str(header),))
    os.chown(tmp_path, 12345, 12345)
    assert not refused(text, include_directories=(str(tmp_path),))
    assert "it belongs to user 12345" in refused(text) or "user 12345 can replace it" in refused(text)


# ------------------------------------------------------------------------------------------------------------- libclang

STUBS = Path(__file__).resolve().parents[3] / "scripts" / "typings" / "clang" / "cindex.pyi"
CLASSES = {item.name: item for item in ast.parse(STUBS.read_text()).body if isinstance(item, ast.ClassDef)}


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - {"FileInclusion"}))
def test_the_binding_has_what_is_stated(name: str) -> None:
    """The test of an include sees the members of a ``FileInclusion``, which only its instances have."""
    members = {
        item.target.id if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) else item.name
        for item in CLASSES[name].body
        if isinstance(item, ast.AnnAssign | ast.FunctionDef)
    }
    assert members or name == "File"
    assert not {member for member in members if not hasattr(getattr(cindex, name), member)}


def test_an_include_knows_its_file_and_its_place(tmp_path: Path) -> None:
    script, header = tmp_path / "a.c", tmp_path / "b.h"
    script.write_text('#include "b.h"\n')
    header.write_text("int x;\n")
    (included,) = cindex.Index.create().parse(str(script)).get_includes()
    assert (str(included.include), included.location.line) == (str(header), 1)
