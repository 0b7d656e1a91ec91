"""fentry and fexit: functions, modules, BPF programs."""

from __future__ import annotations

from pytrace.core.kernel_info import KernelFunction
from pytrace.core.probe_kinds import TypedFunctionTarget
from pytrace.core.types import INT64, Pointer
from pytrace.frontend.syntax.typed_program import Slot
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel


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


def test_fentry_of_several_modules() -> None:
    assert "fentry:mod_a:helper" in Expanded("fentry:helper { }").hints[0]
    assert Expanded("fentry:mod_b:helper { }").names == ["fentry:mod_b:helper"]
    assert Expanded("fentry:*:helper { }").names == ["fentry:mod_a:helper", "fentry:mod_b:helper"]


def test_fentry_that_cannot_be() -> None:
    assert "no kernel function" in Expanded("fentry:vfs_raed { }").errors[0]
    assert "no kernel function 'vfs_read+4'" in Expanded("fentry:vfs_read+4 { }").errors[0]
    assert "CONFIG_DEBUG_INFO_BTF" in Expanded("fentry:vfs_read { }", RecordedKernel(has_btf=False)).errors[0]
    found = Expanded("fentry:vfs_read { }", RecordedKernel(features=frozenset({"kprobe"})))
    assert "kprobe:vfs_read" in found.hints[0]


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


def test_fentry_warns_where_bpf_itself_runs() -> None:
    from tests.support.facts import function

    kernel = RecordedKernel(
        prototypes=(function("_raw_spin_lock", ("lock", INT64)),), traceable=(KernelFunction("_raw_spin_lock"),)
    )
    assert "BPF itself" in Expanded("fentry:_raw_spin_lock { }", kernel).warnings[0]


def test_fentry_says_why_a_function_without_type_cannot_be_traced() -> None:
    kernel = RecordedKernel(reasons={"do_exit_early": "blacklisted"})
    assert "blacklist" in Expanded("fentry:do_exit_early { }", kernel).errors[0]
