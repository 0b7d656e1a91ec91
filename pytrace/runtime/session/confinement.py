"""Confinement: after attaching, a run drops the privileges that it does not need any more.

Links, maps and the ring are open by then and need no privilege. The needs of the rest of a run follow from the script
and the options (:func:`needs`): files to read and write, ``/proc`` of traced processes, sockets. Capabilities are
dropped first; then Landlock and a seccomp filter restrict the rest, where the kernel has them
(docs/operate/privileges.md).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable

import msgspec

from pytrace.base import kernel_files, private_files, whole_files
from pytrace.core.manifest import Manifest
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import END, FileTarget
from pytrace.core.types import InterfaceName, KSym, NetworkNamespace, Stack, Username, USym
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.machine import bpf, confine, perf, privileges
from pytrace.runtime.machine.perf import SOFTWARE_DUMMY, EventAttr, EventType, online_cpus, open_event
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.services import Service
from pytrace.runtime.session.session import Notices

USER_SYMBOLS = "names of user functions are read from /proc/PID and binaries of all users"
INTERPRETERS = "interpreters of Python are looked for in programs that are executed"
KERNEL_SYMBOLS = "names of kernel functions are read from /proc/kallsyms"
CAT = "cat() reads files"
SYSTEM = "system() starts programs, which keep what this user may do"
COMMAND = "the command of -c is ended with the run"
CPUS = "probes are attached again to CPUs that come online"
CALLS = "calls that have not returned are looked for on the stacks of their threads"
OLD_PROBES = "probes of this kernel are detached through tracefs and /proc/PID/mem"
_OLD_MAPS = "this kernel wants it to read maps"
_INSTALLATION = "Python is installed where only it can read"
PROBED = "probed files are looked at"
OUTPUT = "output is written where only it can write"
NETWORK_NAMESPACE = "interfaces of another network namespace are read by a process there"

Say = Callable[[str], None]
"""Prints a notice."""

_KILLS = "another filter, as of systemd, kills for it (allow seccomp and landlock_*)"

_SYSTEM_FILES = (
    "/usr", "/lib", "/lib64", "/bin", "/proc", "/sys", "/run/netns", "/dev/null", "/dev/urandom", "/nix/store",
    "/etc/localtime", "/etc/timezone", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache",
    "/etc/locale.alias", "/etc/python3",
)  # fmt: skip
"""Files that Python, the C library and the runtime read late: modules, time zones, users, facts about the kernel."""
_CPUS = "/sys/devices/system/cpu"
_KERNEL_IMAGES = ("/boot", "/lib/modules")
_RESOLVER_FILES = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
    "/etc/ssl", "/etc/pki", "/etc/ca-certificates",
)  # fmt: skip


class Needs(msgspec.Struct):
    """The privileges and files that a run needs after attaching."""

    capabilities: dict[str, str] = msgspec.field(default_factory=dict)
    """Names of capabilities, with the reason."""
    everything: str = ""
    """Reason not to restrict programs that the run starts; only this process drops capabilities then."""
    all_files: str = ""
    """Reason to read any file, and ``/proc`` of any process, which Landlock cannot allow."""
    read: list[str] = msgspec.field(default_factory=list)
    write: list[str] = msgspec.field(default_factory=list)
    """Directories in which files are created and replaced."""
    existing: str = ""
    """Reason to open existing files for writing."""
    families: list[confine.Family] = msgspec.field(default_factory=list)
    """Address families of sockets that the run may open."""
    cpu_events: bool = False
    """Whether perf events of CPUs are opened, and programs put on them."""
    links: bool = False
    """Whether user probes may have to be attached again."""
    signals: bool = False
    """Whether other processes are sent signals."""

    def keep(self, reason: str, *names: str) -> None:
        """Keep capabilities."""
        for name in names:
            self.capabilities.setdefault(name, reason)


def _changing_cpus() -> set[int]:
    """The CPUs that can go offline or come online; the first one cannot on most machines."""
    online = set(perf.online_cpus())
    return {cpu for cpu in perf.possible_cpus() if cpu not in online or os.path.exists(f"{_CPUS}/cpu{cpu}/online")}


def needs(manifest: Manifest, options: RunOptions, *, legacy: bool, on_cpus: bool, bound: bool = False) -> Needs:
    """Return the needs of a run after attaching.

    Args:
        manifest: of the script.
        options: of the run.
        legacy: whether probes leave something that is removed by writing to files.
        on_cpus: whether probes are attached again to CPUs that come online.
        bound: whether user probes are attached again to a process, another thread of which executes a program.
    """
    wanted = Needs(links=bound)
    kinds = {event.kind for event in manifest.events}
    if manifest.unwind is not None or manifest.shows_user_addresses():
        wanted.all_files = USER_SYMBOLS
        wanted.keep(USER_SYMBOLS, "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")
        # Files that were replaced or removed are read through /proc/PID/map_files.
        wanted.keep(USER_SYMBOLS, "CAP_CHECKPOINT_RESTORE")
    if manifest.python is not None:
        wanted.all_files = wanted.all_files or INTERPRETERS
        wanted.keep(INTERPRETERS, "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE")
    asks = options.verbose or options.live or any(item.kind == END for item in manifest.programs)
    if manifest.calls_of_programs and asks:
        wanted.all_files = wanted.all_files or CALLS
        wanted.keep(CALLS, "CAP_SYS_PTRACE")
    if "cat" in kinds:
        wanted.all_files = wanted.all_files or CAT
        wanted.keep(CAT, "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYSLOG")
    if "system" in kinds:
        wanted.everything = SYSTEM
    if legacy:
        wanted.existing = OLD_PROBES
        wanted.all_files = wanted.all_files or OLD_PROBES
        wanted.keep(OLD_PROBES, "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE")
    if on_cpus:
        wanted.cpu_events = True
        wanted.keep(CPUS, "CAP_PERFMON")
    if options.command is not None:
        wanted.keep(COMMAND, "CAP_KILL")
        wanted.signals = True
    _by_type(wanted, manifest, options)
    _files(wanted, manifest, options)
    return wanted


def _by_type(wanted: Needs, manifest: Manifest, options: RunOptions) -> None:
    """Add what printing values of some types needs."""
    types = list(manifest.printed_types())
    kinds = set(map(type, types))
    stacks = [type_ for type_ in types if isinstance(type_, Stack)]
    if KSym in kinds or any(not stack.user for stack in stacks):
        wanted.keep(KERNEL_SYMBOLS, "CAP_SYSLOG")
        wanted.read += [*_KERNEL_IMAGES, *options.debuginfo, *_named("PYTRACE_VMLINUX", "BPFTRACE_VMLINUX")]
    if (USym in kinds or any(stack.user for stack in stacks)) and _named("DEBUGINFOD_URLS"):
        wanted.families += confine.Family
        wanted.read += [*_RESOLVER_FILES, *_named("SSL_CERT_FILE", "SSL_CERT_DIR")]
        wanted.write += [*_cache("debuginfod_client"), *_named("DEBUGINFOD_CACHE_PATH")]
    if Username in kinds:
        # The user database may be a service (nscd, sssd, systemd).
        wanted.families.append(confine.Family.UNIX)
        wanted.read += ["/var/lib/sss", "/run/systemd/userdb", "/etc/sssd"]
    if InterfaceName in kinds:
        wanted.families.append(confine.Family.NETLINK)
        if options.netns is not None:
            wanted.everything = wanted.everything or NETWORK_NAMESPACE
            wanted.keep(NETWORK_NAMESPACE, "CAP_SYS_ADMIN")
    if NetworkNamespace in kinds:
        wanted.read.append("/var/run/netns")


def _files(wanted: Needs, manifest: Manifest, options: RunOptions) -> None:
    """Add the files that a run writes."""
    outputs = [options.save] if options.save is not None else []
    outputs += [options.output] if options.exports and options.output is not None else []
    for path in outputs:
        if whole_files.replaceable(path):
            wanted.write.append(os.path.dirname(whole_files.target_of(path)))
        else:
            wanted.existing = f"{path} is no regular file"
    if options.save_every is not None:
        wanted.write.append(os.path.realpath(options.save_every[1]))
    if options.live and os.getcwd() != "/":
        wanted.write.append(os.getcwd())
    if any(event.kind == "skboutput" for event in manifest.events):
        wanted.existing = "files of packets are made with the first packet"
        wanted.write.append(os.getcwd())
    if manifest.unwind is not None or any(isinstance(type_, KSym | USym | Stack) for type_ in manifest.printed_types()):
        wanted.write += [*_cache("pytrace/facts"), *_cache("pytrace/unwind")]


def _named(*variables: str) -> list[str]:
    return [os.environ[name] for name in variables if os.environ.get(name)]


def _cache(below: str) -> list[str]:
    """A directory of the user's cache, made if it can be."""
    try:
        with private_files.first_usable([(base, *below.split("/")) for base in private_files.cache_bases()],
                                          create=True) as folder:  # fmt: skip
            return [folder.path]
    except OSError:
        return []


def installation() -> list[str]:
    """Where Python and pytrace import from, and the folders of loaded libraries."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    libraries = {
        os.path.dirname(line.split(maxsplit=5)[5])
        for line in kernel_files.read_text("/proc/self/maps").splitlines()
        if line.count("/") and ".so" in line
    }
    places = [*sys.path, sys.prefix, sys.base_prefix, here, *_named("TZDIR")]
    named = [os.path.realpath(place) for place in places if place]
    return [path for path in dict.fromkeys([*named, *sorted(libraries)]) if path != "/"]


def confine_view() -> None:
    """Give up everything that showing a live view does not take: it writes to its terminal and its channel."""
    privileges.limit_bounding_set(0)
    privileges.hold_capabilities(0, 0)
    _limit(Needs(), installation(), lambda _: None)


def _limit(wanted: Needs, installed: list[str], say: Say) -> None:
    """Restrict files and system calls to those that are wanted, as far as the kernel can."""
    if wanted.everything:
        say(f"Not limited: files and system calls: {wanted.everything}\n")
        return
    try:
        privileges.set_no_new_privileges()
    except OSError as error:
        say(f"Not limited: files and system calls: {error}\n")
        return
    _landlock(wanted, installed, say)
    _seccomp(wanted, say)


def _landlock(wanted: Needs, installed: list[str], say: Say) -> None:
    if wanted.all_files:
        say(f"Files are not limited by Landlock: {wanted.all_files}\n")
        return
    if not _survives(confine.landlock_version):
        say(f"Files are not limited by Landlock: {_KILLS}\n")
        return
    version = confine.landlock_version()
    if not version:
        say("Files are not limited by Landlock: this kernel does not have it, or does not use it\n")
        return
    read = [*_SYSTEM_FILES, *installed, *wanted.read]
    limits = confine.AccessLimits(
        tuple(read), tuple(wanted.write), connections=bool(wanted.families), signals=wanted.signals
    )
    try:
        confine.restrict_access(limits, version)
    except OSError as error:
        say(f"Files are not limited by Landlock: {error}\n")
        return
    say(f"Landlock (ABI {version}): files are written below {', '.join(wanted.write) or 'no directory'}\n")


def _seccomp(wanted: Needs, say: Say) -> None:
    if not confine.filter_available():
        say("System calls are not limited: there is no filter for this machine\n")
        return
    rules = confine.CallRules(
        families=tuple(dict.fromkeys(wanted.families)), new_files=bool(wanted.write),
        existing_files=bool(wanted.existing), cpu_events=wanted.cpu_events, links=wanted.links,
    )  # fmt: skip
    if not _survives(lambda: confine.install_filter(rules)):
        say(f"System calls are not limited: {_KILLS}\n")
        return
    try:
        confine.install_filter(rules)
    except OSError as error:
        say(f"System calls are not limited: {error}\n")
        return
    say(f"System calls are limited (seccomp); {_allowed(rules, wanted)}\n")


class Confinement(Service):
    """Drops the privileges that the rest of a run does not need, before threads start and events are waited for."""

    def __init__(
        self, options: RunOptions, loaded: LoadedScript, probes: Probes, output: Output, notices: Notices
    ) -> None:
        self._options = options
        self._loaded = loaded
        self._probes = probes
        self._output = output
        self._say: Say = notices.tell if options.verbose else lambda _: None

    def begin(self) -> None:
        """Drop privileges. Files that are opened on demand are opened before that: later the kernel would refuse."""
        self._output.prepare()
        self._loaded.reserve()
        self._probes.reserve()
        time.localtime()
        on_cpus = self._probes.depend_on(_changing_cpus())
        legacy = self._probes.detach_by_files
        bound = bool(self._probes.bound) and self._probes.bound_by_links
        self._give_up(needs(self._loaded.manifest, self._options, legacy=legacy, on_cpus=on_cpus, bound=bound))

    def _give_up(self, wanted: Needs) -> None:
        installed = installation()
        self._hold(wanted, installed)
        _limit(wanted, installed, self._say)

    def _hold(self, wanted: Needs, installed: list[str]) -> None:
        """Drop capabilities."""
        held = privileges.permitted_capabilities()
        privileges.hold_capabilities(mask(wanted.capabilities) & held, held)
        names = {**_missed(wanted, installed, self._loaded), **wanted.capabilities}
        privileges.hold_capabilities(held, held)
        names = {held_name: reason for name, reason in names.items() if (held_name := _as_held(name, held))}
        kept = mask(names)
        if not wanted.everything:
            privileges.limit_bounding_set(kept)
        privileges.hold_capabilities(kept, kept)
        by_reason: dict[str, list[str]] = {}
        for name, reason in names.items():
            by_reason.setdefault(reason, []).append(name)
        texts = [f"{', '.join(kept_names)} ({reason})" for reason, kept_names in by_reason.items()]
        self._say(f"Capabilities kept: {'; '.join(texts) or 'none'}\n")


def _allowed(rules: confine.CallRules, wanted: Needs) -> str:
    """The permissions of the filter that not every run has, for the message."""
    allowed = []
    if rules.cpu_events:
        allowed.append("perf events of CPUs may be opened")
    if rules.links:
        allowed.append("loaded programs may be attached again")
    if rules.existing_files:
        allowed.append(f"files may be opened to write ({wanted.existing})")
    elif rules.new_files:
        allowed.append("files may be made and replaced")
    if rules.families:
        families = [f"AF_{family.name}" for family in rules.families]
        allowed.append(f"sockets of {', '.join(families)} may be opened")
    return "; ".join(allowed) or "no file may be written by name, no socket opened"


def _survives(call: Callable[[], object]) -> bool:
    """Whether a system call returns. Another filter may kill for it: ``SystemCallFilter=`` of systemd does.

    A child tries it, if there is a filter already.
    """
    if "Seccomp:\t2" not in kernel_files.read_text("/proc/self/status"):
        return True
    child = os.fork()
    if not child:
        try:
            call()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status)


def mask(names: Iterable[str]) -> int:
    """The bits of capabilities."""
    return sum(1 << privileges.CAPABILITIES[name] for name in set(names))


def _measures_cpus() -> bool:
    """Whether this process may open perf events of CPUs, as far as its rights are concerned."""
    try:
        os.close(open_event(EventAttr(EventType.SOFTWARE, SOFTWARE_DUMMY), cpu=online_cpus()[0]))
    except PermissionError:
        return False
    return True


def _missed(wanted: Needs, installed: list[str], loaded: LoadedScript) -> dict[str, str]:
    """Capabilities without which this process lacks an access, with the reason. They are off during the check."""
    missed: dict[str, str] = {}
    try:
        bpf.map_info(loaded.map_fd(loaded.manifest.ring))
    except PermissionError:
        # Before Linux 5.19 bpf(2) refuses every command without CAP_BPF, unless unprivileged BPF is on.
        missed["CAP_BPF"] = _OLD_MAPS
    if wanted.cpu_events and not _measures_cpus():
        missed["CAP_SYS_ADMIN"] = CPUS
    if not all(map(_readable, installed)):
        missed["CAP_DAC_READ_SEARCH"] = _INSTALLATION
    elif not all(map(_visible, probed_files(loaded.manifest))):
        missed["CAP_DAC_READ_SEARCH"] = PROBED
    if not all(os.access(path, os.W_OK | os.X_OK, effective_ids=True) for path in wanted.write):
        missed["CAP_DAC_OVERRIDE"] = OUTPUT
    return missed


def _as_held(name: str, held: int) -> str:
    """The capability, CAP_SYS_ADMIN where that is held in its place, or an empty text if neither is held."""
    if mask((name,)) & held:
        return name
    stands_in = name in ("CAP_BPF", "CAP_PERFMON") and mask(("CAP_SYS_ADMIN",)) & held
    return "CAP_SYS_ADMIN" if stands_in else ""


def probed_files(manifest: Manifest) -> set[str]:
    """Paths of files with user probes; not those of other mount namespaces, which end with their processes."""
    targets = (target.place for program in manifest.programs for target in program.targets)
    return {place.path for place in targets if isinstance(place, FileTarget) and not place.path.startswith("/proc/")}


def _visible(path: str) -> bool:
    try:
        os.stat(path)
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def _readable(path: str) -> bool:
    try:
        os.scandir(path).close()
    except PermissionError:
        return False
    except OSError:
        return True  # not there, or a file
    return True
