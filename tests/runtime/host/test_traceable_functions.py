"""Functions of the kernel that can be hooked: their sources, patterns over them, what is kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytrace.runtime.host import fingerprints, traceable_functions
from pytrace.runtime.host.kallsyms import Kallsyms
from pytrace.runtime.live_kernel import LiveKernel

LIST = (
    "vfs_read\nvfs_write\nrcu_note\nvfs_read.part.0\ndefault_idle\nhelper\nnf_hook [nf]\nhelper [nf]\nhelper [other]\n"
)


@pytest.fixture
def listed(tmp_path: Path) -> str:
    path = tmp_path / "functions"
    path.write_text(LIST)
    return str(path)


def test_owners_of_one_name(listed: str) -> None:
    found = traceable_functions.TraceableFunctions(listed)
    assert found.owners("vfs_read") == [""]
    assert found.owners("vfs") == []
    assert found.owners("helper") == ["", "nf", "other"]
    assert found.owners("helper", "vmlinux") == [""]
    assert found.owners("helper", "nf") == ["nf"]
    assert found.owners("helper", "n") == []
    assert found.owners("rcu_note") == []
    assert found.owners("default_idle") == []


def test_lists_by_module(listed: str) -> None:
    assert traceable_functions.TraceableFunctions(listed).lists() == {
        "": ["vfs_read", "vfs_write", "vfs_read.part.0", "helper"],
        "nf": ["nf_hook", "helper"],
        "other": ["helper"],
    }


@pytest.mark.parametrize("text", ["", "\n", "one\n", "one", "one [m]\n", "one [m]"])
def test_short_lists(tmp_path: Path, text: str) -> None:
    path = tmp_path / "functions"
    path.write_text(text)
    expected = {"": ["one"] if text.strip() == "one" else []} | ({"m": ["one"]} if "[" in text else {})
    assert traceable_functions.TraceableFunctions(str(path)).lists() == expected


def test_an_exact_name_reads_no_further_than_needed(tmp_path: Path) -> None:
    path = tmp_path / "functions"
    path.write_text("first\n" + "".join(f"function_{number}\n" for number in range(200_000)))
    found = traceable_functions.TraceableFunctions(str(path))
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
    found = traceable_functions.KernelFunctions(listed, Kallsyms, live=False)
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
    found = traceable_functions.KernelFunctions("", lambda: Kallsyms(str(path)), live=False)
    assert found.match("*") == {"": ["vfs_read"], "nf": ["helper"]}
    assert found.match("ftrace_trampoline") == {}
    assert found.match("helper") == {"nf": ["helper"]}


def test_the_list_is_kept_until_something_changes(listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = traceable_functions.KernelFunctions(listed, Kallsyms).match("vfs_*")
    Path(listed).write_text("vfs_other\n")
    assert (
        traceable_functions.KernelFunctions(listed, Kallsyms).match("vfs_*") == first == {"": ["vfs_read", "vfs_write"]}
    )
    assert traceable_functions.KernelFunctions(listed, Kallsyms, live=False).match("vfs_*") == {"": ["vfs_other"]}
    monkeypatch.setattr(fingerprints, "modules_fact", lambda: ("modules", "others"))
    assert traceable_functions.KernelFunctions(listed, Kallsyms).match("vfs_*") == {"": ["vfs_other"]}


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
    assert traceable_functions.blacklist(str(path)) == {"do_int3", "asm_exc"}
    assert traceable_functions.blacklist(str(tmp_path / "missing")) == frozenset()


def test_a_list_with_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "functions"
    path.write_bytes(b"a\xff\nvfs_read\nb [m\xfe]\n")
    found = traceable_functions.TraceableFunctions(str(path))
    assert found.owners("b") == ["m\udcfe"]
    assert found.lists() == {"": ["a\udcff", "vfs_read"], "m\udcfe": ["b"]}
