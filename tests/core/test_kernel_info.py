"""Facts about the machine as data."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import FEATURES, NO_HEADERS, FunctionPrototype, KernelHeaders
from pytrace.core.types import INT32, UINT64, Pointer
from tests.support.facts import TASK


def test_prototypes_in_one_line() -> None:
    found = FunctionPrototype("f", "vmlinux", (("task", Pointer(TASK)), ("n", UINT64)), INT32)
    assert found.text == "int32 (struct task_struct * task, uint64 n)"
    assert FunctionPrototype("f", "vmlinux", (), INT32).text == "int32 ()"


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/k/include/linux/fs.h", True),
        ("/k/include", False),
        ("/k/include2/x.h", False),
        ("/b/gen/x.h", True),
        ("/x.h", False),
    ],
)
def test_headers_of_the_kernel(path: str, inside: bool) -> None:
    assert KernelHeaders(folders=("/k/include", "/b/gen")).holds(path) is inside
    assert not NO_HEADERS.holds(path)


def test_features_are_listed_once() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
