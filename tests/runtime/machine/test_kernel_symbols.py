"""The kernel's symbols, modules and functions that can be traced."""

from __future__ import annotations

import random
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine import fingerprints, kernel_functions
from pytrace.runtime.machine.kernel_functions import KERNEL_HALF, Kallsyms, KernelPlace, ModuleIndex, module_name
from pytrace.runtime.machine.name_patterns import exact, matching, name_pattern, within
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
    assert symbols.owners("rcu_read", without="rcu_") == []


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
# pytrace.runtime.machine.name_patterns: what a ``*`` accepts, whichever of its quick ways answers.


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


def test_only_a_star_makes_a_pattern() -> None:
    assert exact("a?[b].c")
    assert exact("")
    assert not exact("a*")


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
    "vfs_read\nvfs_write\nrcu_note\nvfs_read.part.0\ndefault_idle\nhelper\nnf_hook [nf]\nhelper [nf]\nhelper [other]\n"
)


@pytest.fixture
def listed(tmp_path: Path) -> str:
    path = tmp_path / "functions"
    path.write_text(LIST)
    return str(path)


def test_owners_of_one_name(listed: str) -> None:
    found = kernel_functions.TraceableFunctions(listed)
    assert found.owners("vfs_read") == [""]
    assert found.owners("vfs") == []
    assert found.owners("helper") == ["", "nf", "other"]
    assert found.owners("helper", "vmlinux") == [""]
    assert found.owners("helper", "nf") == ["nf"]
    assert found.owners("helper", "n") == []
    assert found.owners("rcu_note") == []
    assert found.owners("default_idle") == []


def test_lists_by_module(listed: str) -> None:
    assert kernel_functions.TraceableFunctions(listed).lists() == {
        "": ["vfs_read", "vfs_write", "vfs_read.part.0", "helper"],
        "nf": ["nf_hook", "helper"],
        "other": ["helper"],
    }


@pytest.mark.parametrize("text", ["", "\n", "one\n", "one", "one [m]\n", "one [m]"])
def test_short_lists(tmp_path: Path, text: str) -> None:
    path = tmp_path / "functions"
    path.write_text(text)
    expected = {"": ["one"] if text.strip() == "one" else []} | ({"m": ["one"]} if "[" in text else {})
    assert kernel_functions.TraceableFunctions(str(path)).lists() == expected


def test_an_exact_name_reads_no_further_than_needed(tmp_path: Path) -> None:
    path = tmp_path / "functions"
    path.write_text("first\n" + "".join(f"function_{number}\n" for number in range(200_000)))
    found = kernel_functions.TraceableFunctions(str(path))
    assert found.owners("first") == [""]
    assert len(found._text) < path.stat().st_size / 2
    assert found.owners("function_199999") == [""]
    assert len(found.lists()[""]) == 200_001


def test_a_list_is_closed_after_the_last_question(tmp_path: Path) -> None:
    path = tmp_path / "functions"
    path.write_text("vfs_read\n" + "x\n" * (1 << 20))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with closing(LiveKernel(traceable_functions=str(path))) as kernel:
            assert [item.name for item in kernel.kernel_functions("vfs_read")] == ["vfs_read"]
        del kernel
        LiveKernel().close()
    assert not caught


def test_match_by_patterns(listed: str) -> None:
    found = kernel_functions.KernelFunctions(listed, Kallsyms, live=False)
    assert found.match("h*", "vmlinux") == {"": ["helper"]}
    assert found.match("*", "n*") == {"nf": ["nf_hook", "helper"]}
    assert found.match("helper", "*") == {"": ["helper"], "nf": ["helper"], "other": ["helper"]}
    assert found.match("helper", "vm*") == {"": ["helper"]}
    assert found.match("h*") == {"": ["helper"], "nf": ["helper"], "other": ["helper"]}
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
    assert found.match("*") == {"": ["vfs_read"], "nf": ["helper"]}
    assert found.match("ftrace_trampoline") == {}
    assert found.match("helper") == {"nf": ["helper"]}


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
    found = kernel_functions.TraceableFunctions(str(path))
    assert found.owners("b") == ["m\udcfe"]
    assert found.lists() == {"": ["a\udcff", "vfs_read"], "m\udcfe": ["b"]}
