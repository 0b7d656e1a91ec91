"""Modules of earlier starts in one file, from which the command imports them.

Python looks for each module in several folders, and opens, checks and reads a file for it: ten system calls and
50 µs, and a compiled start imports 330 modules. Here the code of all modules that earlier starts imported is in one
file of the user's cache directory, so that a module costs one check of its source file and one read. It also serves
where Python cannot write its own files: in a package folder that is read-only.

Modules of pytrace run when they are first used (:class:`_LateModule`), not when they are imported.

There is one for each interpreter, installation and ``sys.path``. An entry is used only while its source file has the
size and modification time that it had; the file itself only if nobody but the user can have written it
(:func:`descriptor`, :mod:`pytrace.base.private_files`).
:mod:`pytrace.base.module_archive_writer` writes it when a run ends.
"""

# Nothing of pytrace is imported here, nor ``__future__``: that would be read from files of their own.
import _imp
import marshal
import os
import stat
import sys

# Typeshed does not have what the import system keeps to itself.
from _frozen_importlib import ModuleSpec, _init_module_attrs, _ModuleLockManager  # type: ignore[attr-defined]
from _frozen_importlib_external import MAGIC_NUMBER, ExtensionFileLoader, PathFinder, SourceFileLoader
from _thread import _count as other_threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from types import CodeType, ModuleType
else:
    ModuleType = type(sys)  # ``types`` would be imported for it

OWN = "pytrace."
"""How the names of pytrace's modules start."""

FORMAT = 3
"""Number of the archive's format."""

_SESSION, _COMPILER = "pytrace.runtime.session.session", "pytrace.pipeline"
_WRITER = "pytrace.base.module_archive_writer"
"""Modules that tell what a process did: a start from the compile cache runs the first of them only."""

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
        self.expressions: dict[tuple[str | bytes, int], bytes] = {}
        """Arguments of ``_sre.compile`` by source and flags, as ``marshal`` writes them (:mod:`.lazy_regex`)."""
        self.folders: dict[str, int] = {}
        """Folders of pytrace's packages, and their modification times (ns)."""
        self.running: set[str] = set()
        """Modules whose code is running (:meth:`run`)."""
        self.core: frozenset[str] = frozenset()
        """Modules that all starts from the compile cache run: their code is read at once, a third faster than one by
        one, as names that several modules have are there once."""
        self.core_place = (0, 0)
        """Offset and length of their code."""
        self._core: dict[str, CodeType] | None = None
        self.others: tuple[str, ...] = ()
        """Modules that earlier starts imported and that come from no file, such as those of the interpreter itself."""

    def open(self) -> None:
        """Read the index, if there is an archive that can be trusted."""
        self.file = descriptor(self.path)
        if self.file < 0:
            return
        try:
            length = int.from_bytes(os.read(self.file, HEAD), "little")
            entries, others, expressions, folders, core, place = marshal.loads(os.read(self.file, length))
            for folder, changed in folders.items():
                if os.stat(folder).st_mtime_ns != changed:
                    return  # modules were added or removed
        except (OSError, EOFError, ValueError, TypeError):
            return
        self.entries, self.others, self.expressions, self.folders = entries, others, expressions, folders
        self.core, self.core_place = core, place
        self.start = HEAD + length

    def _current(self, name: str) -> bool:
        """Whether the archive has a module as its source file is now."""
        entry = self.entries.get(name)
        if entry is None:
            return False
        try:
            found = os.stat(entry[0])
            if found.st_mtime_ns == entry[1] and found.st_size == entry[2]:
                return True
        except OSError:
            pass
        del self.entries[name]  # the next archive shall have it as it is now
        return False

    def find_spec(
        self, name: str, _path: object = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The finder's method: where a module is, or None for those that are found elsewhere."""
        if not self._current(name):
            return None
        source, _, _, _, length, package = self.entries[name]
        loader = _loader(self, name, source) if length else ExtensionFileLoader(name, source)
        spec = ModuleSpec(name, loader, origin=source, is_package=package)
        spec.has_location = True
        spec.cached = self.path  # otherwise the import system computes the name of a file that nobody reads
        if package:
            spec.submodule_search_locations = [os.path.dirname(source)]
        return spec

    def add_modules(self) -> None:
        """Add all modules of pytrace that earlier starts imported, as modules whose code has not run.

        The import system takes 40 µs for each module, whatever its code does.
        """
        modules = sys.modules
        for name, (source, _, _, _, length, package) in self.entries.items():
            parent, _, last = name.rpartition(".")
            if not name.startswith(OWN) or name in modules or parent not in modules or not length:
                continue
            module = modules[name] = _LateModule(name)
            setattr(modules[parent], last, module)
            if package:
                module.__path__ = [os.path.dirname(source)]

    def run(self, module: ModuleType) -> None:
        """Run the code of a module of :meth:`add_modules`; one that fails runs again at the next use."""
        name = module.__name__
        spec = self.find_spec(name)
        if spec is None:  # its file has changed
            spec = PathFinder.find_spec(name, sys.modules[name.rpartition(".")[0]].__path__)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        self.running.add(name)
        try:
            if type(spec.loader) is _Loader:
                # What the import system does, in a fifth of the time.
                module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
                module.__package__ = spec.parent
                vars(module)["__cached__"] = spec.cached
                if spec.submodule_search_locations is not None:
                    module.__path__ = spec.submodule_search_locations
                # Loaders of the archive always have the code; those of the import system may have none.
                exec(spec.loader.get_code(name), vars(module))  # type: ignore[arg-type]
            else:
                _init_module_attrs(spec, module, override=True)
                spec.loader.exec_module(module)
        except BaseException:
            module.__spec__ = None
            raise
        finally:
            self.running.discard(name)
        module.__class__ = ModuleType

    def code_object(self, name: str) -> "CodeType":
        """The code of a module."""
        if name in self.core:
            if self._core is None:
                self._core = self._read_core()
            found = self._core.pop(name, None)
            if found is not None:
                return found
        code: CodeType = marshal.loads(self.code(name))
        return code

    def _read_core(self) -> "dict[str, CodeType]":
        """The code of the modules of :attr:`core`."""
        from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap  # what runs these modules needs it, too

        offset, length = self.core_place
        before = (self.start + offset) % ALLOCATIONGRANULARITY
        place = self.start + offset - before
        # Mapped: a copy of nearly a megabyte would have to be made, and memory for it.
        with mmap(self.file, before + length, access=ACCESS_READ, offset=place) as data, memoryview(data) as view:
            found: dict[str, CodeType] = marshal.loads(view[before:])
        return found

    def common(self) -> frozenset[str]:
        """The modules that all starts from the compile cache run, as far as known with this process."""
        modules = sys.modules
        ran = {name for name in self.entries if name in modules and type(modules[name]) is not _LateModule}
        if _SESSION not in ran or _COMPILER in ran:
            return self.core
        own = frozenset(name for name in ran - {_WRITER} if name.startswith(OWN) and self.entries[name][4])
        return self.core & own if self.core else own

    def code(self, name: str) -> bytes:
        """The code of a module as ``marshal`` writes it."""
        _, _, _, offset, length, _ = self.entries[name]
        return os.pread(self.file, length, self.start + offset)


class _Loader(SourceFileLoader):
    """Loads a module from the archive; everything but its code is in its source file."""

    def __init__(self, name: str, path: str, archive: Archive) -> None:
        super().__init__(name, path)
        self.archive = archive

    def get_code(self, fullname: str) -> "CodeType | None":
        try:
            return self.archive.code_object(fullname)
        except (OSError, EOFError, ValueError, TypeError, KeyError):
            # A damaged file.
            return super().get_code(fullname)


class _LateModule(ModuleType):
    """A module of pytrace whose code has not run: it does when somebody asks for an attribute that it does not have.

    ``from package import module`` asks for none, so modules that a start does not use cost next to nothing.
    """

    def __getattr__(self, name: str) -> object:
        if name == "__path__":  # the import system asks whether the module is a package
            raise AttributeError(name)
        archive = _installed()
        if not other_threads():
            if type(self) is _LateModule and archive is not None and self.__name__ not in archive.running:
                archive.run(self)
            return ModuleType.__getattribute__(self, name)
        # Another thread that needs the module waits; this one may be running it.
        with _ModuleLockManager(self.__name__):
            if type(self) is _LateModule and archive is not None and self.__name__ not in archive.running:
                archive.run(self)
        found: object = ModuleType.__getattribute__(self, name)
        return found


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


# ---------------------------------------------------------------------------------------------- site


class Site:
    """The last finder of modules where the launcher left out ``site``, which finds what is installed.

    Starts from the archive of modules do without it, which is a millisecond.
    """

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, _target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Run ``site``, once, and look for the module again."""
        if path is not None:
            return None  # a part of a package, which is where the package is
        run_site()
        specs = (finder.find_spec(name, None) for finder in sys.meta_path)
        return next((spec for spec in specs if spec is not None), None)


def run_site() -> None:
    """Run ``site`` if the launcher left it out, for what looks for installed packages itself."""
    left_out = next((finder for finder in sys.meta_path if isinstance(finder, Site)), None)
    if left_out is not None:
        import site

        sys.meta_path.remove(left_out)
        site.main()


# ---------------------------------------------------------------------------------------------- the file


def digest(data: bytes, size: int = 12) -> str:
    """Hexadecimal digest of *data*, 2 * *size* characters long: a name, not a proof.

    The interpreter's own function for bytecode files gives 8 bytes for each key; others have to be loaded first.
    """
    parts = [_imp.source_hash(key, data) for key in range(-(-size // 8))]
    return b"".join(parts)[:size].hex()


def directory(name: str) -> str:
    """The directory for one kind of files: ``$XDG_CACHE_HOME/pytrace/NAME`` or ``~/.cache/pytrace/NAME``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "pytrace", name)


def descriptor(path: str) -> int:
    """A descriptor of a private file; -1 when there is none that can be trusted (:mod:`.private_files`)."""
    try:
        if not own(os.stat(os.path.dirname(path))):
            return -1
        file = open_private(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    if own(os.fstat(file)):
        return file
    os.close(file)
    return -1


def open_private(path: str, flags: int) -> int:
    """An opener for ``open``: links are not followed, and new files get mode 0600."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def own(found: os.stat_result) -> bool:
    """Whether a file or directory is the user's, and nobody else can write to it."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


# ---------------------------------------------------------------------------------------------- installing


def usable() -> bool:
    """Whether modules may come from an archive: not if their search depends on the folder or the environment."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is None and "PYTHONPATH" not in os.environ and "" not in sys.path


def install() -> None:
    """Import modules from the archive from now on."""
    if not usable():
        return
    package = os.path.dirname(os.path.dirname(__file__))
    parts = (str(FORMAT), MAGIC_NUMBER.hex(), sys.version, str(sys.flags.optimize), package, sys.executable, *sys.path)
    name = digest("\0".join(parts).encode("utf-8", "surrogateescape"))
    archive = Archive(os.path.join(directory("modules"), name), frozenset(sys.modules))
    archive.open()
    sys.meta_path.insert(0, archive)
    archive.add_modules()
    _without_collections(archive)


def _installed() -> Archive | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, Archive)), None)


def expression(source: str | bytes, flags: int) -> "re.Pattern[str] | None":
    """The compiled regular expression, if an earlier start compiled it; without importing ``re``."""
    archive = _installed()
    data = archive.expressions.get((source, flags)) if archive is not None else None
    if data is None:
        return None
    # Typeshed does not have the compiler's own module.
    from _sre import compile as make  # type: ignore[import-not-found]

    try:
        found: re.Pattern[str] = make(source, *marshal.loads(data))
    except (EOFError, ValueError, TypeError, RuntimeError):
        return None  # a damaged file
    return found


def unsaved() -> Archive | None:
    """The archive, if this process imported modules or compiled expressions that are not in it and may be written."""
    archive = _installed()
    if archive is None or sys.dont_write_bytecode:
        return None
    missing = sys.modules.keys() - archive.entries.keys() - archive.before
    regex = sys.modules.get("pytrace.base.lazy_regex")
    fresh = missing.difference(archive.others) or (regex is not None and regex.FRESH)
    return archive if fresh or archive.common() != archive.core else None
