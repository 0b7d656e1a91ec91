"""Where the headers of the running kernel are installed, and how the kernel's own build searches them.

A kernel that was built in a directory of its own has two trees: the source, and the build with what was generated.
Distributions install them in different forms; :func:`find` knows these:

- one tree with everything: Fedora and RHEL (``/usr/src/kernels/RELEASE``), Arch (``/usr/lib/modules/RELEASE/build``), a
  kernel that was built in its source
- two trees: Debian (``linux-headers-…-common`` and ``linux-headers-RELEASE``), SUSE (``linux-…`` and
  ``linux-…-obj/MACHINE/FLAVOR``), ``make O=``
- one tree of links into another: Ubuntu (``linux-headers-RELEASE``)
- ``/sys/kernel/kheaders.tar.xz`` of the running kernel (``CONFIG_IKHEADERS``), which is unpacked under the user's cache
  directory
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
from typing import TYPE_CHECKING

from pytrace.base import private_files
from pytrace.base.kernel_files import read_text
from pytrace.base.private_files import Folder, UnusableError, cache_folder
from pytrace.core.kernel_info import NO_HEADERS, KernelHeaders
from pytrace.core.options import ENVIRONMENT_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIND = "headers"
"""The kind of cached files (:mod:`pytrace.base.private_files`)."""

ARCHIVE = "/sys/kernel/kheaders.tar.xz"

_ARCHITECTURES = (
    (r"x86_64|i.86", "x86"),
    (r"aarch64|arm64", "arm64"),
    (r"arm.*", "arm"),
    (r"s390x?", "s390"),
    (r"ppc.*|powerpc.*", "powerpc"),
    (r"riscv.*", "riscv"),
    (r"loongarch.*", "loongarch"),
    (r"mips.*", "mips"),
    (r"parisc.*", "parisc"),
    (r"sparc.*", "sparc"),
)

_DEFINES = {
    # Defined by Makefiles, not by headers.
    "x86": ("CC_USING_FENTRY=1",),
    "arm": ("__LINUX_ARM_ARCH__=7",),
    "arm64": ("KASAN_SHADOW_SCALE_SHIFT=3",),
}


def find(release: str, machine: str, environment: Mapping[str, str], root: str = "") -> KernelHeaders:
    """The headers of kernel *release*: those that the environment names, else those that are installed under *root*."""
    named = {key: _named(environment, key) for key in ("KERNEL_SOURCE", "KERNEL_BUILD")}
    problems = tuple(_problem(*value) for value in named.values() if value is not None and not _is_tree(value[1]))
    source, build = (
        value[1] if value is not None and os.path.isdir(value[1]) else "" for value in named.values()
    )
    if not (source or build):
        source, build = _installed(release, root)
    source, build = _partners(source, build, release)
    if not source or not _is_tree(source):
        return KernelHeaders(problems=problems) if problems else NO_HEADERS
    return described(source, build, machine, problems)


def described(source: str, build: str, machine: str, problems: tuple[str, ...] = ()) -> KernelHeaders:
    """The headers in two trees (which may be the same), in the order of ``LINUXINCLUDE`` of the kernel's Makefile."""
    arch = architecture(machine)
    folders = (
        f"{source}/arch/{arch}/include",
        f"{build}/arch/{arch}/include/generated",
        f"{source}/include",
        f"{build}/include",
        f"{source}/arch/{arch}/include/uapi",
        f"{build}/arch/{arch}/include/generated/uapi",
        f"{source}/include/uapi",
        f"{build}/include/generated/uapi",
    )
    # scripts/Makefile.lib includes compiler_types.h into every file: headers do not include it by themselves.
    included = (f"{source}/include/linux/kconfig.h", f"{source}/include/linux/compiler_types.h")
    return KernelHeaders(
        tuple(dict.fromkeys((source, build))),
        tuple(folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)),
        tuple(path for path in included if os.path.isfile(path)) if _configured(build) else (),
        _DEFINES.get(arch, ()),
        problems,
    )


def architecture(machine: str) -> str:
    """Name of a machine's directory under ``arch``."""
    return next((arch for pattern, arch in _ARCHITECTURES if re.fullmatch(pattern, machine)), machine)


def candidates(release: str, root: str = "") -> tuple[str, ...]:
    """Paths that decide which trees are found, whether they are there or not."""
    return (
        f"{root}/lib/modules/{release}/source",
        f"{root}/lib/modules/{release}/build",
        *(f"{root}/{place}" for place in _places(release)),
    )


def _named(environment: Mapping[str, str], key: str) -> tuple[str, str] | None:
    """Variable and directory of the first variable that is set."""
    for prefix in ENVIRONMENT_PREFIXES:
        value = environment.get(prefix + key)
        if value:
            return prefix + key, os.path.abspath(value)
    return None


def _problem(variable: str, path: str) -> str:
    what = "has no include/linux" if os.path.isdir(path) else "is not a directory"
    return f"{variable} is {path}, which {what}: no kernel headers are read from there"


def _is_tree(path: str) -> bool:
    return os.path.isdir(f"{path}/include/linux") or os.path.isdir(f"{path}/include/generated")


def _configured(build: str) -> bool:
    """True if the configuration, which kconfig.h includes, was made."""
    return os.path.isfile(f"{build}/include/generated/autoconf.h")


def _places(release: str) -> tuple[str, ...]:
    return (
        f"usr/src/kernels/{release}",
        f"usr/src/linux-headers-{release}",
        f"usr/src/linux-{release}",
        f"run/booted-system/kernel-modules/lib/modules/{release}/build",
    )


def _installed(release: str, root: str) -> tuple[str, str]:
    first, second, *others = candidates(release, root)
    source, build = (path if os.path.isdir(path) else "" for path in (first, second))
    if source or build:
        return source, build
    tree = next((path for path in others if _is_tree(path)), "")
    return ("", tree) if tree or root else ("", _unpacked())


def _partners(source: str, build: str, release: str) -> tuple[str, str]:
    """Both trees where one or both are known; links are resolved."""
    source, build = (os.path.realpath(path) if path else "" for path in (source, build))
    if build and not source:
        source = _source_of(build)
    elif source and not build:
        build = _build_of(source, release)
    elif build and not os.path.isdir(f"{source}/include/linux"):
        # Fedora's and Arch's `source` is a link to `build`; elsewhere it may name a tree that was deleted.
        source = _source_of(build)
    return source, build


_INCLUDED = re.compile(
    r"^(?:include\s+(?P<file>\S+)/Makefile|(?:KERNELSRC|MAKEARGS|abs_srctree)\s*:?=\s*(?:-C\s+)?(?P<tree>/\S+))",
    re.MULTILINE,
)


def _source_of(build: str) -> str:
    """The source of a build: itself, or what its Makefile or its link ``source`` names."""
    if os.path.isfile(f"{build}/include/linux/kconfig.h"):
        return build
    choices = [os.path.realpath(f"{build}/source")]
    match = _INCLUDED.search(read_text(f"{build}/Makefile"))
    if match is not None:
        named = os.path.join(build, match["file"] or match["tree"])
        # Packages that were unpacked elsewhere lie side by side as in /usr/src.
        choices.extend((os.path.realpath(named), os.path.join(os.path.dirname(build), os.path.basename(named))))
    return next((path for path in choices if os.path.isfile(f"{path}/include/linux/kconfig.h")), build)


def _build_of(source: str, release: str) -> str:
    """The build of a source: itself, or one beside it that comes from it (Debian's packages)."""
    if _configured(source):
        return source
    parent = os.path.dirname(source)
    names = [f"linux-headers-{release}", *sorted(os.listdir(parent))]
    beside = (f"{parent}/{name}" for name in names if name.startswith("linux-headers-"))
    return next((path for path in beside if _configured(path) and _source_of(path) == source), source)


def _unpacked(archive: str = ARCHIVE) -> str:
    """The running kernel's archive of headers as a tree; empty when there is none or no place to keep it."""
    if not os.path.isfile(archive):
        return ""
    with open(archive, "rb") as file:
        data = file.read()
    name = private_files.digest(data)
    try:
        with cache_folder(_KIND, create=True) as folder:
            return _kept(folder, name) or _unpack(data, folder, name)
    except OSError:
        return ""


def _kept(folder: Folder, name: str) -> str:
    """The path of an unpacked tree; empty if there is none, or it is not as it was unpacked."""
    tree = os.path.join(folder.path, name)
    if not os.path.lexists(tree):
        return ""
    known = private_files.read(_KIND, f"{name}.digest")
    try:
        with folder.open(name) as inside:
            if known == _tree_digest(inside.path):
                return tree
    except UnusableError:
        pass
    folder.discard(name, "it is damaged")
    return ""


def _tree_digest(tree: str) -> bytes:
    """A digest of the names and contents of all files below a directory."""
    digest = hashlib.blake2b()
    for parent, folders, files in os.walk(tree):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                data = file.read()
            digest.update(f"{path.removeprefix(tree)}\0{len(data)}\0".encode(errors="surrogateescape"))
            digest.update(data)
    return digest.digest()


def _unpack(data: bytes, folder: Folder, name: str) -> str:
    """Unpack an archive as *name* in a directory, and return its path; empty if it cannot be unpacked."""
    try:
        import lzma
        import tarfile
    except ImportError:  # a Python that was built without
        return ""
    fresh, tree = private_files.temporary_name(), os.path.join(folder.path, name)
    try:
        os.mkdir(fresh, 0o700, dir_fd=folder.descriptor)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as members:
            if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
                members.extraction_filter = tarfile.data_filter
            # By its path, as all that leads there is private.
            members.extractall(os.path.join(folder.path, fresh))
        private_files.write(_KIND, f"{name}.digest", _tree_digest(os.path.join(folder.path, fresh)))
        os.rename(fresh, name, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError):
        # Also when another run was faster.
        shutil.rmtree(fresh, ignore_errors=True, dir_fd=folder.descriptor)
    return tree if os.path.isdir(tree) else ""
