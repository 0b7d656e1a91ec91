"""Modules of earlier starts in one file, from which the command imports them.

Python looks for each module in several folders, and opens, checks and reads a file for it: ten system calls and
50 µs, and a compiled start imports 330 modules. Here the code of all modules that earlier starts imported is in one
file of the user's cache directory, so that a module costs one check of its source file and one read. It also serves
where Python cannot write its own files: in a package folder that is read-only.

There is one for each interpreter, installation and ``sys.path``. An entry is used only while its source file has the
size and modification time that it had; the file itself only if nobody but the user can have written it
(:mod:`pytrace.base.private_files`).
:mod:`pytrace.base.module_archive_writer` writes it when a run ends.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, ExtensionFileLoader, SourceFileLoader

from pytrace.base import private_files
from pytrace.base.fast_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, ModuleType

HEAD = 8
"""Size of the first field: the length of the index that follows it."""

Entry = tuple[str, int, int, int, int, bool]
"""Source file, its modification time (ns) and size, offset and length of the code, whether it is a package. An
extension module has the length 0."""


class Archive:
    """The archive of this interpreter and package, as a finder of modules."""

    def __init__(self, path: str, before: frozenset[str]) -> None:
        self.path = path
        self.before = before
        """Modules that were imported before the archive was in place; they are not part of it."""
        self.file = -1
        """File descriptor, or -1."""
        self.start = 0
        """Where the code starts."""
        self.entries: dict[str, Entry] = {}
        self.others: tuple[str, ...] = ()
        """Modules that earlier starts imported and that come from no file, such as those of the interpreter itself."""

    def open(self) -> None:
        """Read the index, if there is an archive that can be trusted."""
        self.file = private_files.descriptor(self.path)
        if self.file < 0:
            return
        try:
            length = int.from_bytes(os.read(self.file, HEAD), "little")
            self.entries, self.others = marshal.loads(os.read(self.file, length))
        except (OSError, EOFError, ValueError, TypeError):
            return
        self.start = HEAD + length

    def find_spec(
        self, name: str, _path: object = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The finder's method: where a module is, or None for those that are found elsewhere."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        source, changed, size, _, length, package = entry
        try:
            found = os.stat(source)
        except OSError:
            found = None
        if found is None or found.st_mtime_ns != changed or found.st_size != size:
            del self.entries[name]  # the next archive shall have it as it is now
            return None
        loader = _loader(self, name, source) if length else ExtensionFileLoader(name, source)
        spec = ModuleSpec(name, loader, origin=source, is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [os.path.dirname(source)]
        return spec

    def code(self, name: str) -> bytes:
        """The code of a module as ``marshal`` writes it."""
        _, _, _, offset, length, _ = self.entries[name]
        return os.pread(self.file, length, self.start + offset)


class _Loader(SourceFileLoader):
    """Loads a module from the archive; everything but its code is in its source file."""

    def __init__(self, name: str, path: str, archive: Archive) -> None:
        super().__init__(name, path)
        self.archive = archive

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            code: CodeType = marshal.loads(self.archive.code(fullname))
        except (OSError, EOFError, ValueError, TypeError, KeyError):
            # A damaged file.
            return super().get_code(fullname)
        return code


class _Collections(_Loader):
    """Loads ``collections``, whose part ``abc`` is there already."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        vars(module).setdefault("abc", sys.modules["collections.abc"])


def _loader(archive: Archive, name: str, source: str) -> _Loader:
    return (_Collections if name == "collections" else _Loader)(name, source, archive)


def _without_collections(archive: Archive) -> None:
    """Make ``collections.abc`` importable without ``collections``, as a cached start needs nothing else of that.

    It is an alias of ``_collections_abc``, which the interpreter has loaded; Python 3.13 makes it one too.
    """
    if not {"collections", "collections.abc"} & sys.modules.keys() and archive.find_spec("collections") is not None:
        sys.modules["collections.abc"] = sys.modules["_collections_abc"]


def usable() -> bool:
    """Whether modules may come from an archive: not if their search depends on the folder or the environment."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is None and "PYTHONPATH" not in os.environ and "" not in sys.path


def install() -> None:
    """Import modules from the archive from now on."""
    if not usable():
        return
    package = os.path.dirname(os.path.dirname(__file__))
    parts = (MAGIC_NUMBER.hex(), sys.version, str(sys.flags.optimize), package, *sys.path)
    name = private_files.digest("\0".join(parts).encode("utf-8", "surrogateescape"))
    archive = Archive(os.path.join(private_files.directory("modules"), name), frozenset(sys.modules))
    archive.open()
    sys.meta_path.insert(0, archive)
    _without_collections(archive)


def unsaved() -> Archive | None:
    """The archive, if this process imported modules that are not in it and may be written."""
    archive = next((finder for finder in sys.meta_path if isinstance(finder, Archive)), None)
    if archive is None or sys.dont_write_bytecode:
        return None
    missing = sys.modules.keys() - archive.entries.keys() - archive.before
    return archive if missing.difference(archive.others) else None
