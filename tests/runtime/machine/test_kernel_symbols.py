"""The kernel's symbols, modules, functions that can be traced, tracepoints and headers."""

from __future__ import annotations

import os
import random
import re
import tarfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.base import private_files
from pytrace.core.kernel_info import NO_HEADERS, DefinedEvent, KernelFunction, KernelHeaders
from pytrace.core.text import matching, name_pattern
from pytrace.core.types import (
    BOOL,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.runtime.binaries.elf_file import within
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine import fingerprints, kernel_functions, kernel_headers, tracefs
from pytrace.runtime.machine.kernel_functions import KERNEL_HALF, Kallsyms, KernelPlace, ModuleIndex, module_name
from tests.support.headers import build_tree, debian_build, source_tree
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- kallsyms
# pytrace.runtime.machine.kernel_functions on texts made by hand and on this machine's own.


TEXT = """\
0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_number
ffffffff81000000 T startup
ffffffff81000000 T startup_alias
ffffffff81000100 t helper
ffffffff81000200 W weak_one
ffffffff81000300 D table
ffffffff81000400 T rcu_read
ffffffff81000500 T _end
ffffffffc0001000 t mod_init\t[mod]
ffffffffc0000100 T helper\t[mod]
ffffffffc0002000 t bpf_prog_6deef7357e7b4530_trace\t[bpf]
"""
MODULES = "mod 16384 0 - Live 0xffffffffc0000000 (E)\n"


@pytest.fixture
def symbols(tmp_path: Path) -> Kallsyms:
    (tmp_path / "kallsyms").write_text(TEXT)
    (tmp_path / "modules").write_text(MODULES)
    return Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "modules"))


def test_addresses(symbols: Kallsyms) -> None:
    assert symbols.address("helper") == 0xFFFFFFFF81000100
    assert symbols.address("mod_init") == 0xFFFFFFFFC0001000
    assert symbols.address("help") is None


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (0xFFFFFFFF81000000, KernelPlace("startup", 0, "")),
        (0xFFFFFFFF810000FF, KernelPlace("startup", 0xFF, "")),
        (0xFFFFFFFF81000100, KernelPlace("helper", 0, "")),
        (0xFFFFFFFF81000504, KernelPlace("_end", 4, "")),
        (0xFFFFFFFFC0000150, KernelPlace("helper", 0x50, "mod")),
        (0xFFFFFFFFC0001010, KernelPlace("mod_init", 0x10, "mod")),
        (0xFFFFFFFFC0000050, None),
        (0xFFFFFFFFC0004001, KernelPlace("bpf_prog_6deef7357e7b4530_trace", 0x2001, "bpf")),
        (0xFFFFFFFF80FFFFFF, None),
        (0xFFFFFFFF82000000, None),
        (0x1008, None),
        (0, None),
    ],
)
def test_places(symbols: Kallsyms, address: int, place: KernelPlace | None) -> None:
    assert symbols.place(address) == place


def test_owners_of_functions(symbols: Kallsyms) -> None:
    assert symbols.owners("helper") == ["", "mod"]
    assert symbols.owners("helper", "vmlinux") == [""]
    assert symbols.owners("helper", "mod") == ["mod"]
    assert symbols.owners("help") == []
    assert symbols.owners("table") == [], "data is no function"
    assert symbols.owners("rcu_read") == [""]


def test_all_functions_of_a_name(tmp_path: Path) -> None:
    """Static ones of several files, without data, code of the boot and those of modules that are not asked for."""
    again = "ffffffff81000600 t helper\nffffffff81000680 T helper_too\nffffffff81000700 d helper\n"
    boot = "ffffffff82000000 T _sinittext\nffffffff82000040 t helper\nffffffff82001000 T _einittext\n"
    path = tmp_path / "kallsyms"
    path.write_text(TEXT.replace("ffffffffc0001000", f"{again}{boot}ffffffffc0001000"))
    symbols = Kallsyms(str(path))
    for module in ("", "vmlinux"):
        assert symbols.addresses("helper", module) == [0xFFFFFFFF81000100, 0xFFFFFFFF81000600]
    assert symbols.addresses("helper", "mod") == [0xFFFFFFFFC0000100]
    assert symbols.addresses("weak_one") == [0xFFFFFFFF81000200]
    assert symbols.addresses("table") == symbols.addresses("elper") == symbols.addresses("helper", "bpf") == []


def test_all_functions(symbols: Kallsyms) -> None:
    lists = symbols.function_lists(without="rcu_")
    assert [name for name in lists[""] if "_" in name] == ["startup_alias", "weak_one", "_end"]
    assert "helper" in lists["mod"]
    assert "table" not in lists[""]


def test_sizes(symbols: Kallsyms) -> None:
    assert symbols.function_size("startup") == 0x100
    assert symbols.function_size("helper", "mod") == 0xF00
    assert symbols.function_size("missing") is None


def test_hidden_addresses_are_no_addresses(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_text("0000000000000000 T startup\n0000000000000000 t helper\n")
    symbols = Kallsyms(str(tmp_path / "kallsyms"))
    assert symbols.hidden
    assert symbols.address("helper") is None
    assert symbols.addresses("helper") == []
    assert symbols.owners("helper") == [""]
    assert "CAP_SYSLOG" in symbols.withheld or "kptr_restrict" in symbols.withheld
    assert [symbols.has(name) for name in ("helper", "mod_init", "help", "startup")] == [True, False, False, True]


def test_shown_addresses_are_not_withheld(symbols: Kallsyms, tmp_path: Path) -> None:
    assert symbols.withheld == ""
    (tmp_path / "empty").touch()
    assert Kallsyms(str(tmp_path / "empty")).withheld == "", "a kernel without symbols hides nothing"


def test_this_kernel_against_a_plain_search() -> None:
    symbols = Kallsyms()
    if symbols.hidden:
        pytest.skip("this user may not see kernel addresses")
    rows = [line.split() for line in symbols.text.decode().splitlines() if "\t" not in line]
    rows = [row for row in rows if int(row[0], 16) >= KERNEL_HALF]
    addresses = [int(row[0], 16) for row in rows]
    assert addresses == sorted(addresses)
    chance = random.Random(1)
    for _ in range(500):
        address = chance.randrange(addresses[0], addresses[-1])
        first = bisect_left(addresses, addresses[bisect_right(addresses, address) - 1])
        assert symbols.place(address) == KernelPlace(rows[first][2], address - addresses[first], "")


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_bytes(b"ffffffff81000000 T _text\nffffffffc0000100 t a\xff\x0b\x85b\t[m\xfe]\n")
    (tmp_path / "modules").write_bytes(b"m\xfe 16384 0 - Live 0xffffffffc0000000 (E)\nnonsense\n\n")
    found = Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "modules"))
    name, module = b"a\xff\x0b\x85b".decode(errors="surrogateescape"), "m\udcfe"
    assert found.place(0xFFFFFFFFC0000104) == KernelPlace(name, 4, module)
    assert found.owners(name) == [module]
    assert found.function_lists("__")[""] == ["_text"]
    assert found.module_start(module) == 0xFFFFFFFFC0000000


# ---------------------------------------------------------------------------------------------- module index
# Tests of what is told about modules that are not loaded.


DEP = """kernel/fs/ext4/ext4.ko: kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko
kernel/fs/mbcache.ko:
kernel/fs/jbd2/jbd2.ko.xz:
kernel/drivers/nvme/host/nvme-core.ko.zst:
kernel/drivers/nvme/host/nvme.ko: kernel/drivers/nvme/host/nvme-core.ko
kernel/drivers/nvme/host/nvme-fabrics.ko: kernel/drivers/nvme/host/nvme-core.ko
kernel/drivers/md/md-mod.ko:
kernel/net/sctp/sctp_diag.ko: kernel/net/sctp/sctp.ko
kernel/net/sctp/sctp.ko:
"""
SYMBOLS = """# Aliases for symbols, used by symbol_request().
alias symbol:md_flush_request md_mod
alias symbol:nvme_complete_rq nvme_core
alias symbol:shared one
alias symbol:shared two
"""


@pytest.fixture
def index(tmp_path: Path) -> ModuleIndex:
    folder = tmp_path / "6.1"
    folder.mkdir()
    (folder / "modules.dep").write_text(DEP)
    (folder / "modules.symbols").write_text(SYMBOLS)
    (folder / "modules.builtin").write_text("kernel/fs/fuse/fuse.ko\nkernel/lib/crc-t10dif.ko\n")
    return ModuleIndex("6.1", str(tmp_path))


@pytest.mark.parametrize(
    ("path", "name"),
    [("kernel/drivers/md/md-mod.ko.xz", "md_mod"), ("kernel/fs/ext4/ext4.ko", "ext4"), ("ext4.ko\n", "ext4")],
)
def test_names_of_modules(path: str, name: str) -> None:
    assert module_name(path) == name


def test_modules_that_export(index: ModuleIndex) -> None:
    assert index.exporting("md_flush_request") == ["md_mod"]
    assert index.exporting("shared") == ["one", "two"]
    assert index.exporting("nvme_*") == ["nvme_core"]
    assert index.exporting("ext4_file_open") == []


def test_modules_by_the_names_of_their_functions(index: ModuleIndex) -> None:
    assert index.named_like("ext4_file_open") == ["ext4"]
    assert index.named_like("__ext4_error") == ["ext4"]
    assert index.named_like("nvme_submit_io") == ["nvme", "nvme_core"]
    assert index.named_like("nvme_core_init") == ["nvme_core"]
    assert index.named_like("vfs_read") == []
    assert index.of_family("nvme_submit_io") == ["nvme_core", "nvme", "nvme_fabrics"]
    assert index.of_family("md_*") == ["md_mod"]
    assert index.of_family("*") == []


def test_a_machine_without_modules(tmp_path: Path) -> None:
    empty = ModuleIndex("6.1", str(tmp_path))
    assert (empty.installed, empty.built_in, empty.exporting("a"), empty.named_like("a_b"), empty.of_family("a_b")) == (
        {},
        frozenset(),
        [],
        [],
        [],
    )


def test_what_the_kernel_tells(index: ModuleIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "functions"
    listed.write_text("vfs_read\ntcp_connect\njbd2_log\t[jbd2]\n")
    kernel = LiveKernel(traceable_functions=str(listed))
    monkeypatch.setitem(kernel.__dict__, "_module_index", index)
    monkeypatch.setattr(LiveKernel, "modules", lambda self: ["jbd2", "sctp"])
    assert [kernel.module_state(name) for name in ("jbd2", "ext4", "fuse", "nosuch")] == [
        "loaded",
        "installed",
        "built in",
        "absent",
    ]
    assert kernel.unloaded_modules("md_flush_request") == (["md_mod"], True)
    assert kernel.unloaded_modules("ext4_*") == (["ext4"], False)
    assert kernel.unloaded_modules("jbd2_nosuch") == ([], False)
    assert kernel.unloaded_modules("md_nosuch") == (["md_mod"], False)
    # Of a family of which the kernel has functions, a name that it lacks is misspelt.
    assert kernel.unloaded_modules("tcp_conect") == ([], False)


def test_symbols_that_are_no_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = tmp_path / "kallsyms"
    symbols.write_text("ffffffff81000000 T vfs_read\nffffffff82000000 D jiffies\nffffffffc0000000 d nf_table\t[nf]\n")
    listed = tmp_path / "functions"
    listed.write_text("vfs_read\n")
    kernel = LiveKernel(traceable_functions=str(listed))
    monkeypatch.setitem(kernel.__dict__, "kallsyms", Kallsyms(str(symbols)))
    reasons = [kernel.untraceable_reason(name) for name in ("vfs_read", "jiffies", "nf_table", "no_such_symbol_at_all")]
    assert reasons == ["", "variable", "variable", "missing"]


# ---------------------------------------------------------------------------------------------- name patterns
# pytrace.core.text: what a ``*`` accepts, whichever of its quick ways answers.


NAMES = ["vfs_read", "vfs_readv", "ksys_read", "read", "vfs", "a.b", "a\nb", "aXb", "[x]", ""]


@each_row(
    ("pattern", "accepted"),
    [
        ("*", NAMES),
        ("vfs_read", ["vfs_read"]),
        ("vfs_*", ["vfs_read", "vfs_readv"]),
        ("*read", ["vfs_read", "ksys_read", "read"]),
        ("*read*", ["vfs_read", "vfs_readv", "ksys_read", "read"]),
        ("v*s*d", ["vfs_read"]),
        ("a.b", ["a.b"]),
        ("a*b", ["a.b", "a\nb", "aXb"]),
        ("a.*", ["a.b"]),
        ("[x*", ["[x]"]),
        ("", [""]),
        # Head and tail may not share letters.
        ("vfs*s", []),
        ("vfs_r*read", []),
    ],
)
def test_names_that_a_pattern_accepts(pattern: str, accepted: list[str]) -> None:
    assert matching(pattern, NAMES) == accepted
    assert matching(pattern, iter(NAMES)) == accepted
    assert [name for name in NAMES if name_pattern(pattern).fullmatch(name)] == accepted


@pytest.mark.parametrize(
    ("text", "accepted"), [(b"read", True), (b"re_d", True), (b"read@v1", False), (b"rd", False), (b"bread", False)]
)
def test_a_star_that_stops_at_some_bytes(text: bytes, accepted: bool) -> None:
    assert bool(re.fullmatch(within("re*d", b"@"), text)) is accepted


def test_letters_of_expressions_mean_themselves_in_bytes_too() -> None:
    assert re.fullmatch(within("a.b*", b"@"), b"a.bc")
    assert not re.fullmatch(within("a.b*", b"@"), b"aXbc")
    assert re.fullmatch(within("größe*", b"\n"), "größe_1".encode())


# ---------------------------------------------------------------------------------------------- traceable functions
# Functions of the kernel that can be hooked: their sources, patterns over them, what is kept.


LIST = (
    "vfs_read\nvfs_write\nrcu_note\nhelper\nvfs_read.part.0\ndefault_idle\nhelper\nnf_hook [nf]\nhelper [nf]\n"
    "helper [other]\n"
)


@pytest.fixture
def listed(tmp_path: Path) -> str:
    path = tmp_path / "functions"
    path.write_text(LIST)
    return str(path)


def test_one_name(listed: str) -> None:
    functions = kernel_functions.KernelFunctions(listed, Kallsyms, live=False)
    assert functions.match("vfs_read") == {"": ["vfs_read"]}
    assert functions.match("vfs") == {}
    assert functions.match("helper") == {"": ["helper", "helper"], "nf": ["helper"], "other": ["helper"]}
    assert functions.match("helper", "vmlinux") == {"": ["helper", "helper"]}
    assert functions.match("helper", "nf") == {"nf": ["helper"]}
    assert functions.match("helper", "n") == {}
    assert functions.match("rcu_note") == {}
    assert functions.match("default_idle") == {}


def test_lists_by_module(listed: str) -> None:
    assert kernel_functions.traceable_functions(listed) == {
        "": ["vfs_read", "vfs_write", "helper", "vfs_read.part.0", "helper"],
        "nf": ["nf_hook", "helper"],
        "other": ["helper"],
    }


@pytest.mark.parametrize("text", ["", "\n", "one\n", "one", "one [m]\n", "one [m]"])
def test_short_lists(tmp_path: Path, text: str) -> None:
    path = tmp_path / "functions"
    path.write_text(text)
    expected = {"": ["one"] if text.strip() == "one" else []} | ({"m": ["one"]} if "[" in text else {})
    assert kernel_functions.traceable_functions(str(path)) == expected


def test_match_by_patterns(listed: str) -> None:
    found = kernel_functions.KernelFunctions(listed, Kallsyms, live=False)
    assert found.match("h*", "vmlinux") == {"": ["helper", "helper"]}
    assert found.match("*", "n*") == {"nf": ["nf_hook", "helper"]}
    assert found.match("helper", "*") == {"": ["helper", "helper"], "nf": ["helper"], "other": ["helper"]}
    assert found.match("helper", "vm*") == {"": ["helper", "helper"]}
    assert found.match("h*") == {"": ["helper", "helper"], "nf": ["helper"], "other": ["helper"]}
    assert found.match("vfs_*e") == {"": ["vfs_write"]}
    assert found.match("vfs_read.part.0") == {"": ["vfs_read.part.0"]}
    assert found.match("nothing*") == {}


def test_what_the_kernel_makes_is_no_function(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000000 T vfs_read\nffffffff81000010 t __pfx_vfs_read\nffffffff81000020 T rcu_note\n"
        "ffffffff81000030 D table\nffffffffc0000000 t helper\t[nf]\nffffffffc0000010 t helper\t[nf]\n"
        "ffffffffc0000100 t bpf_prog_1_x\t[bpf]\nffffffffc0000200 t ftrace_trampoline\t[__builtin__ftrace]\n"
    )
    found = kernel_functions.KernelFunctions("", lambda: Kallsyms(str(path)), live=False)
    assert found.match("*") == {"": ["vfs_read"], "nf": ["helper", "helper"]}
    assert found.match("ftrace_trampoline") == {}
    assert found.match("helper") == {"nf": ["helper", "helper"]}


def test_the_list_is_kept_until_something_changes(listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = kernel_functions.KernelFunctions(listed, Kallsyms).match("vfs_*")
    Path(listed).write_text("vfs_other\n")
    assert (
        kernel_functions.KernelFunctions(listed, Kallsyms).match("vfs_*") == first == {"": ["vfs_read", "vfs_write"]}
    )
    assert kernel_functions.KernelFunctions(listed, Kallsyms, live=False).match("vfs_*") == {"": ["vfs_other"]}
    monkeypatch.setattr(fingerprints, "modules_fact", lambda: ("modules", "others"))
    assert kernel_functions.KernelFunctions(listed, Kallsyms).match("vfs_*") == {"": ["vfs_other"]}


def test_traceable_functions_option(listed: str) -> None:
    kernel = LiveKernel(traceable_functions=listed)
    assert [item.name for item in kernel.kernel_functions("vfs_*")] == ["vfs_read", "vfs_write"]
    assert [item.name for item in kernel.kernel_functions("vfs_read.part.0")] == ["vfs_read.part.0"]
    assert [item.module for item in kernel.kernel_functions("helper", "nf")] == ["nf"]
    assert kernel.kernel_functions("helper", "vmlinux") == [KernelFunction("helper", "", 2)]
    assert kernel.untraceable_reason("vfs_read") == ""
    assert kernel.untraceable_reason("rcu_note") == "excluded"
    assert kernel.untraceable_reason("no_such_function_at_all") == "missing"
    assert any(fact[0] == "file" and fact[1] == listed for fact in kernel.dependencies())


def test_answers_that_loading_a_module_could_change(
    listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveKernel, "_depend_on_modules", lambda self: self._depend(("modules",)))
    symbols = tmp_path / "kallsyms"
    symbols.write_text("ffffffff81000000 T vfs_read\nffffffffc0000000 d nf_table\t[nf]\n")

    def depends(ask: Callable[[LiveKernel], object]) -> bool:
        kernel = LiveKernel(traceable_functions=listed)
        kernel.__dict__["kallsyms"] = Kallsyms(str(symbols))
        ask(kernel)
        return ("modules",) in kernel.dependencies()

    assert not depends(lambda kernel: kernel.kernel_functions("vfs_read"))
    assert depends(lambda kernel: kernel.kernel_functions("vfs_*"))
    assert depends(lambda kernel: kernel.kernel_functions("nf_hook"))
    assert depends(lambda kernel: kernel.kernel_functions("missing"))
    assert not depends(lambda kernel: kernel.kernel_symbol("vfs_read"))
    assert depends(lambda kernel: kernel.kernel_symbol("nf_table"))
    assert depends(lambda kernel: kernel.kernel_symbol("missing"))


def test_blacklist(tmp_path: Path) -> None:
    path = tmp_path / "blacklist"
    path.write_text("0xffffffff81000000-0xffffffff81000010\tdo_int3\n0xffffffff81000020-0xffffffff81000030\tasm_exc\n")
    assert kernel_functions.blacklist(str(path)) == {"do_int3", "asm_exc"}
    assert kernel_functions.blacklist(str(tmp_path / "missing")) == frozenset()


def test_a_list_with_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "functions"
    path.write_bytes(b"a\xff\nvfs_read\nb [m\xfe]\n")
    assert kernel_functions.traceable_functions(str(path)) == {"": ["a\udcff", "vfs_read"], "m\udcfe": ["b"]}


# ---------------------------------------------------------------------------------------------- tracefs
# pytrace.runtime.machine.tracefs: formats of tracepoints, lists of traceable functions.


FORMAT = """\
name: sample
ID: 782
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int dfd;\toffset:8;\tsize:8;\tsigned:0;
\tfield:const char * filename;\toffset:16;\tsize:8;\tsigned:0;
\tfield:umode_t mode;\toffset:24;\tsize:8;\tsigned:0;
\tfield:char comm[16];\toffset:32;\tsize:16;\tsigned:0;
\tfield:__u8 saddr[4];\toffset:48;\tsize:4;\tsigned:0;
\tfield:unsigned long args[6];\toffset:56;\tsize:48;\tsigned:0;
\tfield:bool done;\toffset:104;\tsize:1;\tsigned:0;
\tfield:enum state state;\toffset:108;\tsize:4;\tsigned:0;
\tfield:struct node * node;\toffset:112;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:120;\tsize:4;\tsigned:0;
\tfield:__rel_loc u64[] list;\toffset:124;\tsize:4;\tsigned:0;
\tfield:unknown_t blob;\toffset:128;\tsize:24;\tsigned:0;
\tfield:unknown_t small;\toffset:152;\tsize:4;\tsigned:1;
\tfield:const char *const * argv;\toffset:160;\tsize:8;\tsigned:0;
\tfield:void (*)(struct work *) function;\toffset:168;\tsize:8;\tsigned:0;
\tfield:long state[2];\toffset:176;\tsize:16;\tsigned:1;

print fmt: "field:char fake; offset:1; size:1;", REC->dfd
"""

STATE = Enum("state", 4, False, (("IDLE", 0),))
NODE = Struct("struct", "node", 8, ())
KNOWN = {
    ("typedef", "umode_t"): UINT16,
    ("typedef", "__u8"): UINT8,
    ("typedef", "u64"): UINT64,
    ("enum", "state"): STATE,
    ("struct", "node"): NODE,
}


def _lookup(kind: str, name: str) -> Type | None:
    return KNOWN.get((kind, name))


@pytest.fixture(scope="module")
def fields() -> dict[str, tracefs.TracepointField]:
    text = FORMAT.partition("print fmt")[0]
    return {item.name: item for item in tracefs.parse_format(text, _lookup, AddressSpace.USER)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("common_type", UINT16),
        ("common_pid", INT32),
        ("dfd", INT64),
        ("filename", Pointer(INT8, AddressSpace.USER)),
        ("mode", UINT16),
        ("comm", String(16)),
        ("saddr", Array(UINT8, 4)),
        ("args", Array(UINT64, 6)),
        ("done", BOOL),
        ("node", Pointer(NODE, AddressSpace.USER)),
        ("name", String(0)),
        ("list", Array(UINT64, 0)),
        ("blob", Array(UINT8, 24)),
        ("small", INT32),
        ("argv", Pointer(Pointer(INT8, AddressSpace.USER), AddressSpace.USER)),
        ("state", Array(INT64, 2)),
    ],
)
def test_types_of_fields(fields: dict[str, tracefs.TracepointField], name: str, kind: Type) -> None:
    assert fields[name].type == kind


def test_places_and_declarations(fields: dict[str, tracefs.TracepointField]) -> None:
    name, listed = fields["name"], fields["list"]
    assert (name.offset, name.size, name.data_loc, name.relative) == (120, 4, True, False)
    assert (listed.data_loc, listed.relative) == (True, True)
    assert name.declaration == "__data_loc char[] name"
    assert fields["filename"].declaration == "const char * filename"
    assert fields["function"].type == Pointer(VOID, AddressSpace.USER)


def test_print_format_is_no_field() -> None:
    names = [item.name for item in tracefs.parse_format(FORMAT, _lookup, AddressSpace.KERNEL)]
    assert "fake" not in names


DEFINITIONS = """\
p:probe_app/work /bin/app:0x0000000000001040 n=%di:s32 text=+0(%si):string
r16:probe_app/work__return /bin/my:app:0x1040(0x20) arg1=$retval
p:kprobes/reads ext4:ext4_read+0x10
r:kprobes/done vfs_read
p:kprobes/raw 0xffffffff81000000
e:eprobes/odd sched.sched_switch prev=$prev_pid
s:woken u64 lat
"""


@pytest.mark.parametrize("names", [("dynamic_events",), ("uprobe_events", "kprobe_events")])
def test_events_that_others_have_defined(tmp_path: Path, names: tuple[str, ...]) -> None:
    lines = DEFINITIONS.splitlines(keepends=True)
    for number, name in enumerate(names):
        (tmp_path / name).write_text("".join(lines[number :: len(names)]))
    events = tracefs.Tracepoints(str(tmp_path), lambda *_: None)
    work = events.defined("probe_app", "work")
    fetches = ("n=%di:s32", "text=+0(%si):string")
    assert work == DefinedEvent(lines[0].rstrip(), "p", "/bin/app", offset=0x1040, fetches=fetches)
    back, reads = events.defined("probe_app", "work__return"), events.defined("kprobes", "reads")
    assert back is not None
    assert (back.letter, back.path, back.offset) == ("r", "/bin/my:app", 0x1040)
    assert reads is not None
    assert (reads.letter, reads.function, reads.module, reads.offset) == ("p", "ext4_read", "ext4", 16)
    for group, name in (("kprobes", "raw"), ("eprobes", "odd")):
        other = events.defined(group, name)
        assert other is not None
        assert (other.letter, other.path, other.function) == ("", "", "")
    assert events.defined("sched", "sched_switch") is None


# ---------------------------------------------------------------------------------------------- kernel headers
# Where kernel headers are looked for, in the layouts of distributions.


RELEASE = "6.1.0-9-amd64"


def find(root: Path, release: str = RELEASE, **environment: object) -> KernelHeaders:
    texts = {name: str(value) for name, value in environment.items()}
    return kernel_headers.find(release, "x86_64", texts, str(root))


def modules(root: Path, **links: Path) -> None:
    folder = root / "lib/modules" / RELEASE
    folder.mkdir(parents=True)
    for name, target in links.items():
        (folder / name).symlink_to(target)


def parts(found: KernelHeaders, root: Path) -> list[str]:
    return [folder.removeprefix(f"{root}/") for folder in found.folders]


@pytest.fixture
def split(tmp_path: Path) -> tuple[Path, Path]:
    """Debian's: two packages in /usr/src."""
    source = source_tree(tmp_path / "usr/src/linux-headers-6.1.0-9-common")
    return source, build_tree(tmp_path / "usr/src/linux-headers-6.1.0-9-amd64", source)


SPLIT = [
    "usr/src/linux-headers-6.1.0-9-common/arch/x86/include",
    "usr/src/linux-headers-6.1.0-9-amd64/arch/x86/include/generated",
    "usr/src/linux-headers-6.1.0-9-common/include",
    "usr/src/linux-headers-6.1.0-9-amd64/include",
]


def test_both_links_of_debian(tmp_path: Path, split: tuple[Path, Path]) -> None:
    modules(tmp_path, source=split[0], build=split[1])
    found = find(tmp_path)
    assert parts(found, tmp_path) == SPLIT
    assert found.trees == (str(split[0]), str(split[1]))
    assert found.included == (f"{split[0]}/include/linux/kconfig.h",)


@pytest.mark.parametrize("link", ["source", "build"])
def test_one_link_of_debian(tmp_path: Path, split: tuple[Path, Path], link: str) -> None:
    modules(tmp_path, **{link: split[link == "build"]})
    assert parts(find(tmp_path), tmp_path) == SPLIT


def test_packages_without_links(tmp_path: Path, split: tuple[Path, Path]) -> None:
    assert parts(find(tmp_path), tmp_path) == SPLIT


def test_packages_that_were_unpacked_elsewhere(tmp_path: Path) -> None:
    source_tree(tmp_path / "linux-headers-6.1.0-9-common")
    build = build_tree(tmp_path / "linux-headers-6.1.0-9-amd64", Path("/usr/src/linux-headers-6.1.0-9-common"))
    found = find(tmp_path, BPFTRACE_KERNEL_BUILD=build)
    assert found.trees == (f"{tmp_path}/linux-headers-6.1.0-9-common", str(build))


@pytest.mark.parametrize("place", ["usr/src/kernels/6.1.0-9-amd64", "lib/modules/6.1.0-9-amd64/build"])
def test_one_tree(tmp_path: Path, place: str) -> None:
    tree = build_tree(source_tree(tmp_path / place, uapi__linux__types_h=""))
    found = find(tmp_path)
    assert found.trees == (str(tree),)
    assert parts(found, tmp_path / place) == [
        "arch/x86/include", "arch/x86/include/generated", "include", "include/uapi",
    ]  # fmt: skip


def test_links_into_another_tree(tmp_path: Path) -> None:
    """Ubuntu's: the tree of the flavour has links to the common one."""
    common = source_tree(tmp_path / "usr/src/linux-headers-6.1.0-9", linux__sched_h="")
    build = build_tree(tmp_path / "usr/src/linux-headers-6.1.0-9-amd64")
    (build / "include/linux").symlink_to("../../linux-headers-6.1.0-9/include/linux")
    modules(tmp_path, build=build)
    found = find(tmp_path)
    assert found.trees == (str(build),)
    assert any(os.path.exists(f"{folder}/linux/sched.h") for folder in found.folders)
    assert common.is_dir()


@pytest.mark.parametrize(
    "makefile",
    ["include ../../../linux-6.1/Makefile\n", "KERNELSRC := {source}\n", "MAKEARGS := -C {source} O=x\n", "# none\n"],
)
def test_build_in_a_directory_of_its_own(tmp_path: Path, makefile: str) -> None:
    """SUSE's packages, and `make O=` of several versions, which link the source or name it in the Makefile."""
    source = source_tree(tmp_path / "usr/src/linux-6.1")
    build = build_tree(tmp_path / "usr/src/linux-6.1-obj/x86_64/default")
    (build / "Makefile").write_text(makefile.format(source=source))
    if "none" in makefile:
        (build / "source").symlink_to(source)
    modules(tmp_path, build=build)
    assert find(tmp_path).trees == (str(source), str(build))


def test_variables_come_first(tmp_path: Path, split: tuple[Path, Path]) -> None:
    modules(tmp_path, source=split[0], build=split[1])
    own = build_tree(source_tree(tmp_path / "own"))
    other = build_tree(source_tree(tmp_path / "other"))
    assert find(tmp_path, BPFTRACE_KERNEL_SOURCE=own).trees == (str(own),)
    assert find(tmp_path, PYTRACE_KERNEL_SOURCE=other, BPFTRACE_KERNEL_SOURCE=own).trees == (str(other),)
    both = find(tmp_path, BPFTRACE_KERNEL_SOURCE=split[0], BPFTRACE_KERNEL_BUILD=split[1])
    assert parts(both, tmp_path) == SPLIT
    # The source alone of two packages is of little use: what was generated lies beside it.
    assert parts(find(tmp_path, BPFTRACE_KERNEL_SOURCE=split[0]), tmp_path) == SPLIT


def test_a_variable_that_names_nothing_is_told(tmp_path: Path, split: tuple[Path, Path]) -> None:
    (tmp_path / "empty").mkdir()
    found = find(tmp_path, BPFTRACE_KERNEL_SOURCE=tmp_path / "empty")
    assert found.folders == ()
    (problem,) = found.problems
    assert problem.startswith(f"BPFTRACE_KERNEL_SOURCE is {tmp_path}/empty, which has no include/linux: ")
    found = find(tmp_path, PYTRACE_KERNEL_BUILD=tmp_path / "nowhere")
    assert "PYTRACE_KERNEL_BUILD" in found.problems[0]
    assert "is not a directory" in found.problems[0]
    assert parts(found, tmp_path) == SPLIT


def test_no_headers(tmp_path: Path) -> None:
    assert find(tmp_path) == NO_HEADERS
    modules(tmp_path, build=tmp_path / "deleted")
    assert find(tmp_path) == NO_HEADERS


def test_machines_have_other_directories(tmp_path: Path) -> None:
    tree = build_tree(source_tree(tmp_path))
    (tree / "arch/arm64/include").mkdir(parents=True)
    found = kernel_headers.described(str(tree), str(tree), "aarch64")
    assert found.folders[0] == f"{tree}/arch/arm64/include"
    assert found.defines == ("KASAN_SHADOW_SCALE_SHIFT=3",)
    names = {kernel_headers.architecture(name) for name in ("x86_64", "i686", "ppc64le", "s390x", "riscv64", "armv7l")}
    assert names == {"x86", "powerpc", "s390", "riscv", "arm"}


def test_the_kernels_archive_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = build_tree(source_tree(tmp_path / "tree", linux__sched_h="#define TASK_RUNNING 0\n"))
    with tarfile.open(tmp_path / "kheaders.tar.xz", "w:xz") as archive:
        archive.add(tree, ".")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    first = kernel_headers._unpacked(str(tmp_path / "kheaders.tar.xz"))
    assert Path(first, "include/linux/sched.h").read_text() == "#define TASK_RUNNING 0\n"
    assert os.stat(first).st_mode & 0o77 == 0
    before = os.stat(first).st_ino
    assert kernel_headers._unpacked(str(tmp_path / "kheaders.tar.xz")) == first
    assert os.stat(first).st_ino == before
    assert sorted(os.listdir(os.path.dirname(first))) == [os.path.basename(first), f"{os.path.basename(first)}.digest"]


@pytest.mark.parametrize("damage", ["changed", "truncated", "removed", "added", "writable", "file", "link", "digest"])
def test_a_damaged_tree_is_unpacked_again(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = build_tree(source_tree(tmp_path / "tree", linux__sched_h="#define TASK_RUNNING 0\n"))
    with tarfile.open(tmp_path / "kheaders.tar.xz", "w:xz") as archive:
        archive.add(tree, ".")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    first = Path(kernel_headers._unpacked(str(tmp_path / "kheaders.tar.xz")))
    header = first / "include/linux/sched.h"
    if damage in ("changed", "truncated"):
        header.write_text("#define TASK_RUNNING 1\n" if damage == "changed" else "")
    elif damage == "removed":
        header.unlink()
    elif damage == "added":
        header.with_name("more.h").write_text("")
    elif damage == "writable":
        first.chmod(0o777)
    elif damage == "digest":
        Path(f"{first}.digest").write_text("")
    else:
        first.rename(tmp_path / "away")
        first.write_text("") if damage == "file" else first.symlink_to(tmp_path / "away")
    assert kernel_headers._unpacked(str(tmp_path / "kheaders.tar.xz")) == str(first)
    assert header.read_text() == "#define TASK_RUNNING 0\n"
    assert not header.with_name("more.h").exists()
    assert first.stat().st_mode & 0o77 == 0
    assert not first.is_symlink()


def test_a_damaged_archive_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "data").write_bytes(os.urandom(1 << 16))
    with tarfile.open(tmp_path / "whole.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "data", "data")
    whole = (tmp_path / "whole.tar.xz").read_bytes()
    for data in (b"\xfd7zXZ\x00 not really", whole[:100], whole[:-9000], whole[:9000] + bytes(100) + whole[9100:]):
        (tmp_path / "kheaders.tar.xz").write_bytes(data)
        assert kernel_headers._unpacked(str(tmp_path / "kheaders.tar.xz")) == ""
    assert os.listdir(private_files.directory("headers")) == []
    assert kernel_headers._unpacked(str(tmp_path / "none")) == ""


@pytest.mark.needs("headers")
def test_debians_packages() -> None:
    build = debian_build()
    found = find(Path("/nowhere"), PYTRACE_KERNEL_BUILD=build)
    assert found.trees[0].endswith("-common")
    assert len(found.folders) == 8
    assert [os.path.basename(path) for path in found.included] == ["kconfig.h", "compiler_types.h"]


def test_changes_of_headers_are_noticed(tmp_path: Path) -> None:
    build = build_tree(source_tree(tmp_path, linux__sched_h="#define TASK_RUNNING 0\n"))
    kernel = LiveKernel(environment={"PYTRACE_KERNEL_BUILD": str(build)})
    kernel.headers()
    paths = [f"{build}/include/linux/{name}.h" for name in ("sched", "kconfig")]
    kernel.depend_on_headers(paths)
    known = kernel.dependencies()
    places = kernel_headers.candidates(os.uname().release)
    assert {fact[1] for fact in known if fact[0] == "file"} >= set(places)
    assert fingerprints.still_true(known)
    Path(paths[0]).write_text("#define TASK_RUNNING 16\n")
    assert not fingerprints.still_true(known)
    kernel = LiveKernel()
    kernel.depend_on_headers(paths)
    assert fingerprints.still_true(kernel.dependencies())
    os.unlink(paths[1])
    assert not fingerprints.still_true(kernel.dependencies())
