"""Hosts for tests: network namespaces with a link to one for the controller, and an sshd of Debian in each.

Addresses are of a range for documentation, and exist in these namespaces only. Keys are made for each test.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.support import bad_line
from tests.support.bad_line import Line
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
SSHD = "/usr/sbin/sshd"

_CONFIG = """
{server}
Port {port}
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PrintMotd no
ClientAliveInterval 0
SetEnv AGENT="{agent}" SHLVL=2
"""
"""Bash reads ``.bashrc`` when sshd starts it, but not as an inner shell: what this machine's has may take a minute (the
lock of a version manager that was killed in it), and is not what is tested."""

_CLIENT = """
Host *
IdentityFile {folder}/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
ConnectTimeout {timeout}
"""



class Login(msgspec.Struct, frozen=True):
    """How a host is logged in to, where that is not as root at port 22."""

    user: str = "root"
    port: int = 22
    client: str = ""
    """Lines of the ssh configuration of the controller's user."""
    server: str = ""
    """Lines of sshd's."""
    files: Mapping[str, str] = {}
    """Files that this host has in place of those of this machine, with their content."""


OWN = "begin { @mine = curtask->nsproxy->net_ns->ns.inum; }"
"""Stores the network namespace of the agent, which a filter compares with that of a process."""
HERE = "curtask->nsproxy->net_ns->ns.inum == @mine"


def missing(*more: str) -> str:
    """What this machine lacks for such hosts, and *more* programs; empty if nothing."""
    needed = ("ip", "tc", "nsenter", "ssh", "ssh-keygen", SSHD, *more)
    return ", ".join(name for name in needed if shutil.which(name) is None)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _inside(namespace: str) -> list[str]:
    """The start of a command that runs in a namespace; ip netns exec would hide tracefs."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


class Host(msgspec.Struct):
    """A host: its name, its namespace, and the processes that were started in it."""

    name: str
    namespace: str
    address: str
    sshd: subprocess.Popen[bytes] | None = None

    def pids(self) -> list[int]:
        """The processes in its namespace."""
        done = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        return [int(word) for word in done.stdout.split()]

    def kill(self) -> None:
        """Kill all its processes."""
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def unplug(self) -> None:
        """Take its link down: both ends of a connection remain, and hear nothing any more."""
        _ip("-n", self.namespace, "link", "set", "up0", "down")

    def plug(self) -> None:
        """Take its link up again."""
        _ip("-n", self.namespace, "link", "set", "up0", "up")

    def slow_down(self, rate: str) -> None:
        """Limit what it sends: ``tc``'s token bucket, as a slow line."""
        words = ("qdisc", "add", "dev", "up0", "root", "tbf", "rate", rate, "burst", "4kb", "latency", "2s")
        subprocess.run(["tc", "-n", self.namespace, *words], check=True, capture_output=True)

    def calls(self, times: int) -> None:
        """A process of this host, whose name is ``caller``, calls getppid() *times*."""
        code = f"import os\nopen('/proc/self/comm', 'w').write('caller')\nfor _ in range({times}): os.getppid()"
        self.run(sys.executable, "-S", "-c", code)

    def run(self, *command: str) -> None:
        """Run a command on this host."""
        subprocess.run([*_inside(self.namespace), *command], check=True)


class Bed:
    """Several hosts, and the namespace of the controller."""

    def __init__(self, folder: Path, agents: Sequence[str], timeout: int, logins: Mapping[str, Login]) -> None:
        """*agents* are the commands that ``$AGENT`` stands for on each host; an empty one has no sshd."""
        self._folder = folder
        self._mark = f"ptf{os.getpid()}"
        self.namespace = f"{self._mark}-ctl"
        self.hosts = [
            Host(f"web{number:02}", f"{self._mark}-{number}", f"192.0.2.{number + 1}")
            for number in range(1, len(agents) + 1)
        ]
        self._agents, self._timeout, self._logins = agents, timeout, logins
        self._lines: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Make keys and namespaces, and start each sshd."""
        folder = self._folder
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        # Of several values for one host ssh takes the first.
        client = "".join(map(self._client, self.hosts)) + _CLIENT.format(folder=folder, timeout=self._timeout)
        (folder / "config").write_text(client)
        _ip("netns", "add", self.namespace)
        _ip("-n", self.namespace, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.namespace, "addr", "add", "192.0.2.1/24", "dev", "br0")
        _ip("-n", self.namespace, "link", "set", "br0", "up")
        for number, (host, agent) in enumerate(zip(self.hosts, self._agents, strict=True), start=1):
            self._add(host, number, agent)

    def _login(self, host: Host) -> Login:
        return self._logins.get(host.name, Login())

    def _client(self, host: Host) -> str:
        login = self._login(host)
        lines = (f"HostName {host.address}", f"Port {login.port}", f"User {login.user}", *login.client.splitlines())
        return f"Host {host.name}\n" + "".join(f"    {line}\n" for line in lines)

    def _add(self, host: Host, number: int, agent: str) -> None:
        _ip("netns", "add", host.namespace)
        _ip("-n", self.namespace, "link", "add", f"h{number}", "type", "veth", "peer", "up0", "netns", host.namespace)
        _ip("-n", self.namespace, "link", "set", f"h{number}", "master", "br0", "up")
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "up0")
        _ip("-n", host.namespace, "link", "set", "up0", "up")
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        if agent:
            login, config = self._login(host), self._folder / f"sshd-{number}"
            config.write_text(_CONFIG.format(
                address=host.address, folder=self._folder, agent=agent, port=login.port, server=login.server
            ))  # fmt: skip
            words = [*_inside(host.namespace), *self._with_files(login, number), SSHD, "-D", "-e", "-f", str(config)]
            host.sshd = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def _with_files(self, login: Login, number: int) -> list[str]:
        """The start of a command in a mount namespace of its own, in which a host has its own files."""
        if not login.files:
            return []
        mounts = []
        for at, (path, content) in enumerate(login.files.items()):
            own = self._folder / f"file-{number}-{at}"
            own.write_text(content)
            own.chmod(0o644)
            mounts.append(f"mount --bind {own} {path}")
        return ["unshare", "--mount", "sh", "-c", " && ".join((*mounts, 'exec "$@"')), "sh"]

    def degrade(self, host: Host, line: Line) -> None:
        """Put a bad line in place of a host's link."""
        number = self.hosts.index(host) + 1
        _ip("-n", host.namespace, "link", "del", "up0")
        ends = ((host.namespace, "up0"), (self.namespace, f"h{number}"))
        self._lines.append(bad_line.laid(line, ends))
        _ip("-n", self.namespace, "link", "set", f"h{number}", "master", "br0", "up")
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "up0")
        _ip("-n", host.namespace, "link", "set", "up0", "up")

    def hide(self, host: Host) -> None:
        """Let the controller not reach a host, which others do."""
        _ip("-n", self.namespace, "route", "add", "blackhole", f"{host.address}/32")

    def know(self, host: Host, key: str) -> None:
        """Have the file ``known`` say that a host has another key than it has."""
        (self._folder / "known").write_text(f"{host.address} {' '.join(key.split()[:2])}\n")

    def fleet(self, *words: str, hosts: Sequence[Host] = ()) -> subprocess.Popen[str]:
        """``pytrace fleet`` with these hosts or all, in the controller's namespace."""
        options = f"-F {self._folder}/config"
        command = [*_inside(self.namespace), sys.executable, "-m", "pytrace", "fleet"]
        command += ["--hosts", ",".join(host.name for host in hosts or self.hosts), "--ssh-options", options]
        command += ["--agent", f"cd {ROOT} && exec $AGENT", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    def left(self) -> dict[str, list[int]]:
        """The processes of each host beside its sshd, after those that end by themselves had time to."""
        end = time.monotonic() + patience(30)
        while True:
            own = {host.sshd.pid for host in self.hosts if host.sshd is not None}
            left = {host.name: [pid for pid in host.pids() if pid not in own] for host in self.hosts}
            left = {name: pids for name, pids in left.items() if pids}
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.2)

    def stop(self) -> None:
        """End all processes, and remove the namespaces."""
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        names = [line.split()[0] for line in listed.splitlines() if line.startswith(self._mark + "-")]
        for name in names:
            Host(name, name, "").kill()
        for host in self.hosts:
            if host.sshd is not None:
                host.sshd.wait()
        for line in self._lines:
            line.kill()
            line.wait()
        for name in names:
            _ip("netns", "del", name)


@contextmanager
def bed(
    folder: Path, agents: Sequence[str], timeout: int = 3, logins: Mapping[str, Login] | None = None
) -> Iterator[Bed]:
    """Hosts, each with the command of its agent."""
    made = Bed(folder, agents, timeout, logins or {})
    try:
        made.start()
        yield made
    finally:
        made.stop()


AGENT = f"{sys.executable} -m pytrace agent"


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """The first line of a process's standard error output that has *text*."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return line
    raise EOFError(f"no {text!r} in {lines}")
