"""Probes of kernel functions: kprobe, fentry and their relatives."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import KernelFunction
from pytrace.core.probe_kinds import KernelFunctionTarget, TypedFunctionTarget
from pytrace.core.types import INT64, AddressSpace, Pointer
from pytrace.frontend.syntax.typed_program import Argument, ReturnValue, Slot
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel, function

MULTI = RecordedKernel(features=FEATURES | {"kprobe_multi"})


def test_kprobe_details() -> None:
    unit = Expanded("kprobe:vfs_read { }").unit
    (target,) = unit.targets
    assert (target.probe, target.place) == ("kprobe:vfs_read", KernelFunctionTarget("vfs_read"))
    assert unit.multi == ""


def test_kprobes_of_modules() -> None:
    (target,) = Expanded("kprobe:mod_a:helper { }").unit.targets
    assert target.probe == "kprobe:mod_a:helper"
    assert target.of(KernelFunctionTarget).module == "mod_a"
    (target,) = Expanded("kprobe:vmlinux:vfs_read { }").unit.targets
    assert target.of(KernelFunctionTarget).module == ""
    found = Expanded("kprobe:helper { }")
    assert "mod_a, mod_b" in found.errors[0]
    assert "kprobe:mod_a:helper" in found.hints[0]
    found = Expanded("kprobe:mod_c:helper { }")
    assert "not loaded" in found.errors[0]
    assert "mod_" in found.hints[0]


def test_kprobe_offsets() -> None:
    (target,) = Expanded("kprobe:vfs_read+0x10 { }").unit.targets
    assert (target.probe, target.of(KernelFunctionTarget).offset) == ("kprobe:vfs_read+16", 16)
    assert "128 bytes" in Expanded("kprobe:vfs_read+4096 { }").errors[0]
    assert not Expanded("kprobe:vfs_read+4096 { }", unsafe=True).errors
    assert "no offset" in Expanded("kretprobe:vfs_read+4 { }").errors[0]
    assert "number" in Expanded("kprobe:vfs_read+x { }").errors[0]


def test_kprobe_addresses_and_misspelt_names() -> None:
    found = Expanded("kprobe:0xffffffff81000000 { }")
    assert "--unsafe" in found.hints[0]
    (target,) = Expanded("kprobe:0xffffffff81000000 { }", unsafe=True).unit.targets
    assert target.place == KernelFunctionTarget(address=0xFFFFFFFF81000000)
    found = Expanded("kprobe:vfs_raed { }")
    assert "kprobe:vfs_read" in found.hints[0]


def test_misspelt_function_suggests_with_unsafe_too() -> None:
    """It is tried, as the list of functions may be incomplete."""
    found = Expanded("kprobe:vfs_raed { }", unsafe=True)
    assert found.names == ["kprobe:vfs_raed"]
    (warning,) = found.diagnostics.warnings
    assert "vfs_raed" in warning.message
    assert "kprobe:vfs_read" in warning.hints[0]


def test_untraceable_function_says_why() -> None:
    found = Expanded("kprobe:preempt_schedule { }")
    assert "notrace" in found.errors[0]
    assert Expanded("kprobe:preempt_schedule { }", unsafe=True).names == ["kprobe:preempt_schedule"]


def test_multi_links_of_kprobes() -> None:
    assert Expanded("kprobe:vfs_* { }", MULTI).unit.multi == "kprobe_multi"
    assert Expanded("kprobe:vfs_* { }", MULTI, no_features=frozenset({"kprobe_multi"})).unit.multi == ""
    assert Expanded("kprobe:vfs_read { }", MULTI).unit.multi == ""
    assert Expanded("kprobe:vfs_* { }").unit.multi == ""
    found = Expanded("kprobe:vfs_*, kprobe:do_exit+4 { }", MULTI)
    assert [unit.multi for unit in found.units] == ["kprobe_multi", ""]
    assert Expanded("kprobe:vfs_* { }").names == ["kprobe:vfs_read", "kprobe:vfs_write", "kprobe:vfs_open"]
    assert Expanded("kprobe:vfs_open.part.0 { }").names == ["kprobe:vfs_open.part.0"]


def test_kernel_without_kprobes_says_so() -> None:
    found = Expanded("kprobe:vfs_read { }", RecordedKernel(features=frozenset({"fentry"})))
    assert "CONFIG_KPROBE" in found.errors[0]
    assert "fentry:vfs_read" in found.hints[0]
    found = Expanded("kprobe:do_sys_openat { }", RecordedKernel(features=frozenset()))
    assert any("tracepoint" in hint for hint in found.hints)
    assert any("syscalls:sys_enter_openat" in hint for hint in found.hints)


@pytest.mark.parametrize("text", ["kprobe", "kprobe:", "kprobe:a:b:c", "kretprobe:a:"])
def test_kprobe_shapes(text: str) -> None:
    assert "form" in Expanded(f"{text} {{ }}").errors[0]


def test_kprobe_arguments_come_from_btf() -> None:
    context = Expanded("kprobe:vfs_read { print(args.count) }").unit.context
    assert [(item.name, item.place) for item in context.arguments] == [("file", Argument(0)), ("count", Argument(1))]
    first = context.arguments[0].type
    assert isinstance(first, Pointer)
    assert first.space is AddressSpace.KERNEL
    assert context.args_type is not None


def test_arguments_and_results_of_kprobes() -> None:
    assert Expanded("kprobe:vfs_read+4 { print(args.count) }").unit.context.args_type is None
    assert (
        Expanded("kprobe:vfs_read { print(args.count) }", RecordedKernel(prototypes=())).unit.context.args_type is None
    )
    result = Expanded("kretprobe:vfs_read { print(retval) }").unit.context.result
    assert result is not None
    assert (result.type, result.place) == (INT64, ReturnValue())
    kernel = RecordedKernel(prototypes=(), traceable=(KernelFunction("vfs_read"),))
    assert Expanded("kretprobe:vfs_read { print(retval) }", kernel).unit.context.result is None


def test_functions_that_are_not_there() -> None:
    for kind in ("kprobe", "kretprobe", "fentry", "fexit"):
        found = Expanded(f"{kind}:ext9_file_open {{ }}")
        assert "the kernel has no symbol of that name" in found.errors[0]
        assert found.hints == ["it may be in module ext9, which is not loaded (modprobe ext9)"]
        assert Expanded(f"{kind}:ext9_* {{ }}").hints == found.hints
    found = Expanded("kprobe:ext9:ext9_open { }")
    assert (found.errors, found.hints) == (["kernel module 'ext9' is not loaded"], ["modprobe ext9 loads it"])
    assert "is built into this kernel" in Expanded("kprobe:compiled:open { }").errors[0]
    assert "none of that name is installed" in Expanded("fentry:mod_c:open { }").errors[0]
    assert Expanded("kprobe:mod_a:vfs_raed { }").errors == ["module mod_a has no function 'vfs_raed'"]
    kernel = RecordedKernel(reasons={"jiffies": "variable"})
    for kind in ("kprobe", "fentry"):
        assert Expanded(f"{kind}:jiffies {{ }}", kernel).errors == ["'jiffies' is a kernel variable, not a function"]


# ---------------------------------------------------------------------------------------------------------- trampolines


def test_fentry_details_and_context() -> None:
    unit = Expanded("fentry:vfs_read { print(args.file) }").unit
    (target,) = unit.targets
    assert (target.probe, target.place) == (
        "fentry:vmlinux:vfs_read",
        TypedFunctionTarget("vfs_read", "vmlinux"),
    )
    assert [item.place for item in unit.context.arguments] == [Slot(0), Slot(1)]
    file = unit.context.arguments[0].type
    assert isinstance(file, Pointer)
    assert file.trusted
    assert unit.context.slots == 2
    assert unit.context.result is None


def test_fexit_result_is_behind_the_arguments() -> None:
    result = Expanded("fexit:vfs_read { print(retval) }").unit.context.result
    assert result is not None
    assert (result.type, result.place) == (INT64, Slot(2))


def test_fentry_of_several_modules_or_none() -> None:
    assert "fentry:mod_a:helper" in Expanded("fentry:helper { }").hints[0]
    assert Expanded("fentry:mod_b:helper { }").names == ["fentry:mod_b:helper"]
    assert Expanded("fentry:*:helper { }").names == ["fentry:mod_a:helper", "fentry:mod_b:helper"]
    assert "no kernel function" in Expanded("fentry:vfs_raed { }").errors[0]
    assert "no kernel function 'vfs_read+4'" in Expanded("fentry:vfs_read+4 { }").errors[0]
    assert "CONFIG_DEBUG_INFO_BTF" in Expanded("fentry:vfs_read { }", RecordedKernel(has_btf=False)).errors[0]
    found = Expanded("fentry:vfs_read { }", RecordedKernel(features=frozenset({"kprobe"})))
    assert "kprobe:vfs_read" in found.hints[0]
    kernel = RecordedKernel(reasons={"do_exit_early": "blacklisted"})
    assert "blacklist" in Expanded("fentry:do_exit_early { }", kernel).errors[0]
    kernel = RecordedKernel(
        prototypes=(function("_raw_spin_lock", ("lock", INT64)),), traceable=(KernelFunction("_raw_spin_lock"),)
    )
    assert "BPF itself" in Expanded("fentry:_raw_spin_lock { }", kernel).warnings[0]


SHARED = RecordedKernel(
    prototypes=tuple(function(name, ("device", INT64)) for name in ("type_show", "name_show", "one")),
    traceable=(KernelFunction("type_show", "", 17), KernelFunction("name_show", "", 3), KernelFunction("one")),
)


def test_fentry_is_on_one_function_of_a_name() -> None:
    found = Expanded("fentry:type_show { }", SHARED)
    assert found.warnings == ["17 functions of the kernel are named 'type_show'; fentry is on one of them only"]
    assert found.hints == ["kprobe:type_show is on all of them"]
    found = Expanded("fexit:*_show { }", SHARED)
    assert found.warnings == [
        "20 functions of the kernel share 2 of these names, such as 'type_show'; fexit is on one of each only"
    ]
    assert found.hints == ["kretprobe:*_show is on all of them"]
    assert Expanded("fentry:one { }", SHARED).warnings == []
    alone = RecordedKernel(prototypes=SHARED.prototypes, traceable=SHARED.traceable, features=frozenset({"fentry"}))
    assert Expanded("fentry:type_show { }", alone).hints == []


def test_kprobes_are_on_all_functions_of_a_name() -> None:
    (target,) = Expanded("kprobe:type_show { }", SHARED).unit.targets
    assert target.place == KernelFunctionTarget("type_show", shared=True)
    places = [target.place for target in Expanded("kprobe:* { }", SHARED).unit.targets]
    assert places == [
        KernelFunctionTarget("type_show", shared=True), KernelFunctionTarget("name_show", shared=True),
        KernelFunctionTarget("one"),
    ]  # fmt: skip
    several = RecordedKernel(traceable=SHARED.traceable, features=frozenset({"kprobe", "kprobe_multi"}))
    assert Expanded("kprobe:type_show { }", several).unit.multi == "kprobe_multi"
    assert Expanded("kprobe:one { }", several).unit.multi == ""


def test_what_the_compiler_made_of_a_function_is_named() -> None:
    kernel = RecordedKernel(
        prototypes=(), traceable=(KernelFunction("free_it.isra.0"), KernelFunction("free_it.constprop.0"))
    )
    for kind in ("kprobe", "fentry"):
        (hint,) = Expanded(f"{kind}:free_it {{ }}", kernel).hints
        assert hint.startswith("the compiler made free_it.isra.0 and free_it.constprop.0 of it, with other arguments: ")
        assert hint.endswith(f" {kind}:free_it.isra.0")


def test_fentry_of_bpf_programs() -> None:
    kernel = RecordedKernel(programs=[(12, "count_calls"), (13, "count_calls"), (14, "other")])
    assert Expanded("fentry:bpf:count_calls { }", kernel).names == [
        "fentry:bpf:12:count_calls",
        "fentry:bpf:13:count_calls",
    ]
    (target,) = Expanded("fentry:bpf:13:count_calls { }", kernel).unit.targets
    assert target.place == TypedFunctionTarget("count_calls", program_id=13)
    (target,) = Expanded("fentry:bpf:*:other { }", kernel).unit.targets
    assert target.place == TypedFunctionTarget("other", program_id=14, by_pattern=True)
    assert "fentry:bpf:other" in Expanded("fentry:bpf:othr { }", kernel).hints[0]
    assert "number" in Expanded("fentry:bpf:x1:other { }", kernel).errors[0]
