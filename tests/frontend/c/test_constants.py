"""Constants of the kernel's headers that come with pytrace: values, what comes before them, what is said without."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from generating import constants as generator

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import Enum
from pytrace.frontend.expand import c_definitions, c_translation
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.syntax import parser
from pytrace.runtime.machine import kernel_headers
from tests.support.facts import RecordedKernel
from tests.support.front import analyse
from tests.support.headers import build_tree, debian_headers, source_tree

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
    """What the kernel's own headers have of the names."""
    return generator.own_constants(debian_headers(), NAMES)


@cache
def for_programs(machine: str) -> dict[str, int]:
    """What the headers for programs have of the names."""
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


def read(text: str, kernel: RecordedKernel) -> Definitions:
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", text), diagnostics)
    return c_definitions.read(program, CompileOptions(), kernel, diagnostics)


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


def test_constants_inside_the_c_part() -> None:
    found = read("#include <linux/none-such.h>\nstruct s { char path[PATH_MAX]; };\nbegin { }", RecordedKernel())
    struct = found.struct("struct", "s")
    assert struct is not None
    assert struct.size == 4096


# ---- messages


def test_slips() -> None:
    ((message, hints),) = messages("begin { print(TASK_RUNING); }")
    assert message == "unknown name 'TASK_RUNING'"
    assert "'TASK_RUNNING'" in hints[0]
    assert len(hints) == 1


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
