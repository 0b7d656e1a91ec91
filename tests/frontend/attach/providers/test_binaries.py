"""Which binaries a target means."""

from __future__ import annotations

from pytrace.core.kernel_info import UserSymbol
from pytrace.core.probes.targets import UserTarget
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel


def test_binary_of_a_process() -> None:
    kernel = RecordedKernel(files={"/proc/9/exe": ["/bin/app"]})
    assert Expanded("uprobe:work { }", kernel, pid=9).names == ["uprobe:/bin/app:work"]
    assert Expanded("uprobe::work { }", kernel, pid=9).names == ["uprobe:/bin/app:work"]
    assert Expanded("usdt:start { }", kernel, pid=9).names == ["usdt:/bin/app:one:start"]
    assert "binary" in Expanded("uprobe:work { }", kernel).errors[0]


def test_several_binaries_of_one_name() -> None:
    kernel = RecordedKernel(files={"app": ["/bin/app", "/opt/app"]})
    found = Expanded("uprobe:app:work { }", kernel)
    assert found.names == ["uprobe:/bin/app:work"]
    assert "/opt/app" in found.warnings[0]


def test_glob_takes_all_that_fit() -> None:
    symbols = {path: (UserSymbol("work", 0x1000, 0x1000, 8),) for path in ("/a/app", "/b/app")}
    kernel = RecordedKernel(files={"/*/app": ["/a/app", "/b/app", "/c/app", "/d.txt"]}, symbols=symbols)
    found = Expanded("uprobe:/*/app:work { }", kernel)
    assert found.names == ["uprobe:/a/app:work", "uprobe:/b/app:work"]
    assert all(target.of(UserTarget).by_pattern for target in found.unit.targets)
    assert "none of the binaries" in Expanded("uprobe:/*/app:nope { }", kernel).errors[0]


def test_files_that_are_no_programs() -> None:
    kernel = RecordedKernel(files={"/a.txt": ["/a.txt"]}, symbols={"/a.txt": (UserSymbol("main", 1, 1, 1),)})
    assert "ELF" in Expanded("uprobe:/a.txt:main { }", kernel).errors[0]
    assert Expanded("uprobe:/a.txt:main { }", kernel, unsafe=True).names == ["uprobe:/a.txt:main"]
