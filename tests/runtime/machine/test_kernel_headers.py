"""Where kernel headers are looked for, in the layouts of distributions."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from pytrace.base import private_files
from pytrace.core.kernel_info import NO_HEADERS, KernelHeaders
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine import fingerprints, kernel_headers
from tests.support.headers import build_tree, debian_build, source_tree

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
