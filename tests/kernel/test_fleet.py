"""``pytrace fleet`` asks real hosts: network namespaces with an sshd each, some of them faulty, and local agents."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

import pytrace
from pytrace.remote import messages
from pytrace.remote.messages import Hello, Refused
from pytrace.results import file_form
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.machine import procfs
from tests.runtime.binaries.test_debug_files import Site
from tests.support import bad_line, faulty_hosts, small_program, ssh_hosts
from tests.support.agents import COUNTING, ROOT, call
from tests.support.bad_line import Line
from tests.support.patience import patience
from tests.support.scraped import serving
from tests.support.ssh_hosts import AGENT, Login, wait_for
from tests.support.tmux import Terminal, terminal
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.skipif(bool(ssh_hosts.missing()), reason=f"needs {ssh_hosts.missing()}")
@pytest.mark.needs("ip", "ssh")
def test_hosts_and_faults(tmp_path: Path) -> None:
    """Seven hosts; scripts/measure-fleet --hosts asks fifty."""
    faulty_hosts.check(faulty_hosts.ask(tmp_path, 7, 14, "--every", "1"))


@pytest.mark.skipif(bool(ssh_hosts.missing() or bad_line.missing()), reason="needs hosts, and /dev/net/tun")
@pytest.mark.needs("ip", "ssh")
def test_bad_lines(tmp_path: Path) -> None:
    """Lines that delay, lose, double and reorder, and one that is cut for some seconds, change no count and no time."""
    saved = tmp_path / "all.pts"
    with ssh_hosts.bed(tmp_path, [AGENT] * 3, timeout=30) as bed:
        far, lossy, cut = bed.hosts
        bed.degrade(far, Line(0.2, jitter=0.05))
        bed.degrade(lossy, Line(0.02, jitter=0.02, loss=0.05, doubled=0.05))
        words = ("--every", "1", "--by", "host", "-e", faulty_hosts.CALLS, "--save", str(saved))
        with bed.fleet(*words) as fleet, faulty_hosts.killed(fleet):
            line = wait_for(fleet, "attached on")
            for number, host in enumerate(bed.hosts, start=1):
                host.calls(100 * number)
            cut.unplug()
            time.sleep(3)
            cut.plug()
            fleet.send_signal(signal.SIGINT)
            _, error = fleet.communicate(timeout=patience(60))
        left = bed.left()
    answer = pytrace.Snapshot.load(saved)
    assert (line, left, fleet.returncode) == ("attached on 3 of 3 hosts\n", {}, 0), error
    assert dict(answer.to_dict("@")) == {"web01": 100, "web02": 200, "web03": 300}, error
    clocks = [run.clock for run in answer.data.runs]
    assert all(clock is not None and abs(clock[0]) <= clock[1] for clock in clocks), "it is the clock of one machine"
    assert max(clock[1] for clock in clocks if clock is not None) > 100_000_000, "half of a round trip"


def test_accounts_side_by_side(programs: Path, tmp_path: Path) -> None:
    """Each host's account of one service; one that does not answer is a line of its own."""
    agent = f"case %h in web3) exit 3;; *) {sys.executable} -m pytrace agent;; esac"
    words = ("--hosts", "web[1-3]", "--worker", "exec", "--agent", agent, "why", "--comm", "lock", "--for", "1")
    with subprocess.Popen([programs / "whys", "60000", "lock"], cwd=tmp_path, stdout=subprocess.DEVNULL) as service:
        try:
            command = [sys.executable, "-m", "pytrace", "fleet", *words]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        finally:
            service.kill()
    rows = done.stdout.splitlines()
    assert rows[0] == "lock: 2 hosts, none differs", done.stderr
    assert sorted(rows[1].split()) == ["median", "web1", "web2"]
    assert any(row.startswith("waiting for a lock") for row in rows)
    assert "web3: the command ended with status 3" in done.stderr
    assert done.stderr.endswith("2 of 3 hosts answered; 1 failed\n")
    assert done.returncode == 1


def topology(folder: Path, *routes: str) -> str:
    """A file of routes, of which the first is of this machine."""
    path = folder / "topology.conf"
    path.write_text("[routes]\n" + f"{socket.gethostname().partition('.')[0]}: " + "\n".join(routes) + "\n")
    return str(path)


@pytest.mark.skipif(bool(ssh_hosts.missing()), reason=f"needs {ssh_hosts.missing()}")
@pytest.mark.needs("ip", "ssh")
def test_gateways_and_their_faults(tmp_path: Path) -> None:
    """Two gateways with three hosts each, which the controller does not reach: one host is dead, one gateway is killed.

    Counts of hosts are those of what was done on each, and no process stays on any of them.
    """
    saved = tmp_path / "all.pts"
    routes = topology(tmp_path, "web[01-02]", "web01: web[03-05]", "web02: web[06-08]")
    words = ("--topology", routes, "--every", "1", "--by", "host", "-e", faulty_hosts.CALLS, "--save", str(saved))
    agents = [AGENT] * 8
    agents[4] = ""
    with ssh_hosts.bed(tmp_path, agents) as bed:
        gateway, hosts = bed.hosts[1], bed.hosts[2:]
        for host in hosts:
            bed.hide(host)
        with bed.fleet(*words, hosts=hosts) as fleet, faulty_hosts.killed(fleet):
            line = wait_for(fleet, "attached on")
            for number, host in enumerate(hosts, start=1):
                host.calls(100 * number)
            gateway.kill()
            gateway.sshd = None
            fleet.send_signal(signal.SIGINT)
            _, error = fleet.communicate(timeout=patience(60))
        left = bed.left()
    answer = pytrace.Snapshot.load(saved)
    counts = dict(answer.to_dict("@"))
    lines = error.splitlines()
    assert (line, left, fleet.returncode) == ("attached on 5 of 6 hosts\n", {}, 1), lines
    assert "web05: Connection refused (port 22)" in lines
    assert any(text.startswith("web[06-08]: its gateway web02: the connection ended before") for text in lines), lines
    assert lines[-1].startswith("2 of 6 hosts answered; 1 failed, 3 silent since "), lines
    assert answer.losses["hosts without an answer"] == {
        "web05: failed": 1, "web06: silent": 1, "web07: silent": 1, "web08: silent": 1,
    }, answer.losses  # fmt: skip
    assert (counts.pop("web03"), counts.pop("web04")) == (100, 200)
    most = {"web06": 400, "web07": 500, "web08": 600}
    assert all(counted <= most[name] for name, counted in counts.items()), counts


REFUSED = """
web[04-05]: sudo: a password is required
web06: sudo: sorry, you must have a tty to run sudo
web07: sudo: fleet-agent: command not found
web08: its host key has changed
web09: the command ended with status 1; it printed: This account is currently not available.
3 of 9 hosts answered; 6 failed
"""


@pytest.mark.skipif(bool(ssh_hosts.missing("sudo")), reason=f"needs {ssh_hosts.missing('sudo')}")
@pytest.mark.needs("ip", "ssh")
@pytest.mark.needs("sudo")
def test_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users with sudo or without rights, and the ssh configuration: a jump host, a port, keys of an ssh-agent.

    The third has a banner, and its login prints a text without end of line.
    """
    with tempfile.TemporaryDirectory(prefix="pytrace-logins-") as name, ExitStack() as stack:
        folder = Path(name)
        # sshd reads the keys as the user who logs in, and sudo starts what others have written.
        folder.chmod(0o755)
        with ssh_hosts.bed(folder, [AGENT] * 9, logins=logins(folder)) as bed:
            bed.hide(bed.hosts[1])
            bed.know(bed.hosts[7], (folder / "user.pub").read_text())
            monkeypatch.setenv("SSH_AUTH_SOCK", stack.enter_context(ssh_agent(folder)))
            words = ("--become", "sudo", "--agent", "fleet-agent", "--by", "host", "-e", faulty_hosts.CALLS)
            with bed.fleet(*words) as fleet, faulty_hosts.killed(fleet):
                line = wait_for(fleet, "attached on")
                for number, host in enumerate(bed.hosts[:3], start=1):
                    host.calls(100 * number)
                fleet.send_signal(signal.SIGINT)
                out, error = fleet.communicate(timeout=patience(60))
            left = bed.left()
    assert (line, left, fleet.returncode) == ("attached on 3 of 9 hosts\n", {}, 1), error
    assert [text for text in out.splitlines() if text.startswith("@[")] == [f"@[web0{at}]: {at}00" for at in (1, 2, 3)]
    assert sorted(error.splitlines()) == sorted(REFUSED.split("\n")[1:-1])


def of_user(folder: Path, rule: str, shell: str = "/bin/sh", **more: object) -> Login:
    """The login of the user ``tracer``, who is in no files but those of this host, with a rule for sudo."""
    files = {
        "/etc/passwd": f"{Path('/etc/passwd').read_text()}tracer:x:12345:12345::/:{shell}\n",
        "/etc/shadow": f"{Path('/etc/shadow').read_text()}tracer:*:19000:0:99999:7:::\n",
        "/etc/sudoers": f'Defaults secure_path="{folder}/bin:/usr/bin:/bin"\nroot ALL=(ALL) ALL\n{rule}\n',
    }
    return msgspec.convert({"user": "tracer", "files": files, **more}, Login)


def logins(folder: Path) -> dict[str, Login]:
    """How each of nine hosts is logged in to."""
    programs = folder / "bin"
    programs.mkdir()
    agent, greeting, closed = (programs / name for name in ("fleet-agent", "greeting", "closed"))
    agent.write_text(f"#!/bin/sh\ncd {ROOT} && exec {AGENT}\n")
    greeting.write_text('#!/bin/sh\nprintf "Welcome to "\nexec /bin/sh "$@"\n')
    closed.write_text("#!/bin/sh\necho This account is currently not available.\nexit 1\n")
    for program in (agent, greeting, closed):
        program.chmod(0o755)
    (folder / "banner").write_text("Authorized use only.\n")

    allowed, password = f"tracer ALL=(root) NOPASSWD: {agent}", "tracer ALL=(root) ALL"
    elsewhere = 'Defaults secure_path="/usr/bin:/bin"\ntracer ALL=(root) NOPASSWD: ALL'
    by_agent = "IdentityFile none\nIdentitiesOnly no"
    return {
        "web01": of_user(folder, "", user="root"),
        "web02": of_user(folder, allowed, client="ProxyJump web01"),
        "web03": of_user(folder, allowed, str(greeting), port=2222, client=by_agent, server=f"Banner {folder}/banner"),
        "web04": of_user(folder, password),
        "web05": of_user(folder, password),
        "web06": of_user(folder, f"Defaults requiretty\n{allowed}"),
        "web07": of_user(folder, elsewhere),
        "web08": Login(client=f"UserKnownHostsFile {folder}/known\nStrictHostKeyChecking yes"),
        "web09": of_user(folder, allowed, str(closed)),
    }


@contextmanager
def ssh_agent(folder: Path) -> Iterator[str]:
    """The socket of an ssh-agent that has the user's key."""
    place = str(folder / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: Path(place).exists())
            subprocess.run(["ssh-add", "-q", folder / "user"], env={**os.environ, "SSH_AUTH_SOCK": place}, check=True)
            yield place
        finally:
            process.terminate()


def local(*words: str) -> subprocess.Popen[str]:
    """``pytrace fleet`` with agents of this machine: ClusterShell's worker ``exec`` runs the command here."""
    command = [sys.executable, "-m", "pytrace", "fleet", "--worker", "exec", "--agent", AGENT, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_ctrl_c_prints_what_there_is() -> None:
    with local("--hosts", "a[1-3]", "-e", COUNTING) as fleet:
        assert wait_for(fleet, "attached") == "attached on 3 of 3 hosts\n"
        call(11)
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(30))
    assert (fleet.returncode, out.strip(), error) == (0, "@: 33", "3 of 3 hosts answered\n")


@pytest.mark.needs("tmux")
def test_ctrl_c_at_a_terminal_prints_what_there_is(tmp_path: Path) -> None:
    """The terminal sends it to all processes of the group: workers are in sessions of their own."""
    with terminal(tmp_path, 100, 30) as view:
        view.run("fleet", "--worker", "exec", "--agent", AGENT, "--hosts", "a[1-3]", "--map", "@", "-e", COUNTING)
        view.shows("attached on 3 of 3 hosts")
        call(5)
        view.press("C-c")
        assert view.status() == 0
        screen = view.screen()
    assert "@: 15" in screen
    assert "3 of 3 hosts answered" in screen


def test_batches_are_told_before() -> None:
    with local("--hosts", "a[1-3]", "--fanout", "2", "-e", COUNTING, "--duration", "1") as fleet:
        assert wait_for(fleet, "batches") == (
            "3 hosts, 2 at a time (--fanout): 2 batches one after another, which take 2 s and more\n"
        )
        assert fleet.communicate(timeout=patience(60))[1].endswith("3 of 3 hosts answered\n")


def test_a_killed_controller_leaves_nothing() -> None:
    """The fixture looks for agents and for what they attached."""
    with local("--hosts", "a[1-3]", "-e", COUNTING) as fleet:
        wait_for(fleet, "attached")
        fleet.kill()
        fleet.communicate()


def test_hosts_refuse_and_compile_for_themselves() -> None:
    with local("--hosts", "a[1-2]", "--compile-there", "-e", "begin { @ = ; }") as fleet:
        out, error = fleet.communicate(timeout=patience(30))
    assert (fleet.returncode, out) == (1, "")
    assert "a[1-2]: -e:1:13-14: ERROR: syntax: unexpected ';'" in error
    assert "0 of 2 hosts answered; 2 refused (kernel " in error
    # What the end prints is the answer, as of tools, and not what a script has for itself.
    script = "config = { print_maps_on_exit = off } begin { @own = 1; @[str($1)] = $2; exit(3); }"
    script += " end { print_clear(@); }"
    words = ("--compile-there", "-e", script, "abc", "5")
    with local("--hosts", "a1", "--by", "host", *words) as fleet:
        out, error = fleet.communicate(timeout=patience(30))
    assert (fleet.returncode, out.strip()) == (1, "@[a1, abc]: 5")


def test_stages_stop_at_the_first_refusal(tmp_path: Path) -> None:
    """The run on the host of the first stage ends, its results count, and the last two hosts are not asked."""
    said = (
        Hello(protocol=1, version="0", host="x", kernel="4.19", machine="x", wall=0, monotonic=0),
        Refused(text="ERROR: no such tracepoint\n", status=1),
    )
    refusing = tmp_path / "messages"
    refusing.write_bytes(b"".join(map(messages.encode, said)))
    command = f"if [ %h = a2 ]; then cat {refusing}; else exec {AGENT}; fi"
    stages = ("--stage", "1,2,all", "--soak", "0", "--every", "1")
    with local("--hosts", "a[1-4]", *stages, "--agent", command, "-e", COUNTING) as fleet:
        assert wait_for(fleet, "attached") == "stage 1 of 3: attached on 1 of 1 host\n"
        call(5)
        out, error = fleet.communicate(timeout=patience(60))
    assert fleet.returncode == 1
    assert int(out.split()[1]) >= 5, out
    assert "a[3-4]: not asked: the roll-out stopped (a2: no such tracepoint)\n" in error
    assert error.endswith("1 of 4 hosts answered; 2 not asked, 1 refused (kernel 4.19)\n")


def test_gateways_behind_gateways(tmp_path: Path) -> None:
    """Stages pass through two levels, and a reason to stop the roll-out too; labels are put on at the gateways."""
    routes = topology(tmp_path, "g1", "g1: g2,a[1-2]", "g2: b[1-2]")
    words = ("--topology", routes, "--hosts", "a1,b1,c1,a2,b2", "--stage", "1,3,all", "--soak", "0", "--every", "1")
    with local(*words, "--by", "host", "-e", COUNTING + " interval:s:1 { @n = 1; }", "--duration", "6") as fleet:
        wait_for(fleet, "stage 3 of 3: attached on 5 of 5 hosts")
        out, error = fleet.communicate(timeout=patience(60))
    assert (fleet.returncode, error) == (0, "5 of 5 hosts answered\n")
    assert [line for line in out.splitlines() if line.startswith("@n")] == [
        f"@n[{name}]: 1" for name in ("a1", "a2", "b1", "b2", "c1")
    ]  # fmt: skip
    with local(*words, "-e", "begin { @ = count(); exit(2); }") as fleet:
        out, error = fleet.communicate(timeout=patience(60))
    assert (fleet.returncode, out.strip()) == (1, "@: 1")
    assert "a2,b[1-2],c1: not asked: the roll-out stopped (a1: its script ended with status 2)\n" in error


FORMAT = "/sys/kernel/tracing/events/sched/sched_process_exec/format"
OTHER_AGENT = "import sys; sys.modules['llvmlite'] = None; from pytrace.remote.agent import run; sys.exit(run())"
"""An agent without a compiler."""


@pytest.fixture
def other_kernel(tmp_path: Path) -> str:
    """A command for agents, which on hosts ``b…`` cannot compile, and whose kernel has another name for a field."""
    text = Path(FORMAT).read_text().replace("old_pid", "former_pid")
    (tmp_path / "format").write_text(text)
    (tmp_path / "notes").write_bytes(Path("/sys/kernel/notes").read_bytes()[:-1] + b"x")
    mounts = f"mount --bind {tmp_path}/format {FORMAT} && mount --bind {tmp_path}/notes /sys/kernel/notes"
    start = f'{mounts} && exec {sys.executable} -c "{OTHER_AGENT}"'
    return f"case %h in b*) exec unshare -m sh -c {shlex.quote(start)};; *) exec {AGENT};; esac"


def test_a_kernel_for_which_the_controller_compiles(other_kernel: str, tmp_path: Path) -> None:
    """Its own lacks what the script needs; so does that of a1. One of the others is behind a gateway."""
    routes = topology(tmp_path, "g1", "g1: b2")
    words = ("--hosts", "a1,b[1-2]", "--by", "host", "--topology", routes, "--agent", other_kernel)
    script = "t:sched:sched_process_exec { @[args.pid == args.former_pid] = count(); }"
    with local(*words, "-e", script) as fleet:
        assert wait_for(fleet, "lacks") == (
            "this kernel lacks what the script needs (tracepoint:sched:sched_process_exec has no argument "
            "'former_pid'): "
            "it is compiled for each kind of host\n"
        )
        assert wait_for(fleet, "attached") == "attached on 2 of 3 hosts\n"
        for _ in range(3):
            subprocess.run(["true"], check=True)
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(60))
    assert sorted(line.partition(":")[0] for line in out.split("\n") if line) == ["@[b1, true]", "@[b2, true]"]
    error_line = "a1: -e:1:44-59: ERROR: tracepoint:sched:sched_process_exec has no argument 'former_pid'\n"
    refused = f"{error_line}2 of 3 hosts answered; 1 refused (kernel "
    assert refused in error
    assert "compiled here" not in error


def test_a_controller_that_does_not_see_its_own_kernel() -> None:
    """As that of a user who may not: the hosts say what there is. What is wrong with any kernel is said before."""
    hide = "mount -t tmpfs tmpfs /sys/kernel/tracing; umount -l /sys/kernel/debug 2>/dev/null; exec \"$@\""
    agents = f"exec nsenter --mount=/proc/{os.getpid()}/ns/mnt --wd={ROOT} {AGENT}"
    words = ("--worker", "exec", "--hosts", "a[1-2]", "--agent", agents, "-e")
    command = ["unshare", "-m", "sh", "-c", hide, "sh", sys.executable, "-m", "pytrace", "fleet", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, COUNTING], stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as fleet:
        assert "(tracefs is not mounted): it is compiled for each kind of host" in wait_for(fleet, "lacks")
        assert wait_for(fleet, "attached") == "attached on 2 of 2 hosts\n"
        call(7)
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(60))
    assert (fleet.returncode, out.strip(), error) == (0, "@: 14", "2 of 2 hosts answered\n")
    done = subprocess.run([*command, "begin { @ = ; }"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, "unexpected ';'" in done.stderr, "lacks" in done.stderr) == (1, True, False)


@pytest.mark.parametrize("served", [False, True], ids=["folder", "server"])
def test_functions_that_hosts_cannot_name(served: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stacks of a stripped program are named by its debug file, which only the controller is told of."""
    stripped, debug = small_program.split(small_program.built(tmp_path, text=small_program.LAYERS), tmp_path)
    build_id = Binary.open(str(stripped)).elf.build_id
    folder = tmp_path / "debug" / ".build-id" / build_id[:2]
    folder.mkdir(parents=True)
    place = debug.rename(folder / f"{build_id[2:]}.debug")
    script = 't:syscalls:sys_enter_getppid /comm == "stripped"/ { @[ustack] = count(); }'
    words = ("--agent", f"env -u DEBUGINFOD_URLS {AGENT}", "-e", script)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    with ExitStack() as stack:
        if served:
            site = stack.enter_context(Site().running())
            site.files[f"/buildid/{build_id}/debuginfo"] = place.read_bytes()
            monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
        else:
            words = (*words, "--debuginfo", str(tmp_path / "debug"))
        fleet = stack.enter_context(local("--hosts", "a[1-2]", *words))
        wait_for(fleet, "attached on 2 of 2 hosts")
        subprocess.run([stripped], check=True)
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(60))
    assert (fleet.returncode, error) == (0, "2 of 2 hosts answered\n")
    assert "middle+" in out, (out, served and site.asked)
    assert "outer+" in out, out
    assert out.rstrip().endswith("]: 2"), out


@contextmanager
def waiting(program: Path, private: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of :data:`small_program.WAITING`; *private*: its file is in a mount namespace, and not here."""
    command: list[str | Path] = [program]
    if private is not None:
        steps = 'mount -t tmpfs none "$0" && cp "$1" "$0/layers" && exec "$0/layers"'
        command = ["unshare", "--mount", "sh", "-c", steps, private, program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        try:
            yield process
        finally:
            process.kill()


def stacks_of(process: subprocess.Popen[bytes], folder: Path, *words: str) -> tuple[str, list[str]]:
    """What a fleet prints of the stacks of a process, and the questions about functions to its hosts."""
    agent = f"tee {folder}/said.%h | {AGENT}"
    script = f"t:syscalls:sys_enter_getppid /pid == {process.pid}/ {{ @[ustack] = count(); }}"
    with local(*words, "--agent", agent, "-e", script) as fleet:
        wait_for(fleet, "attached on 3 of 3 hosts")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"called\n"
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(60))
    assert (fleet.returncode, error) == (0, "3 of 3 hosts answered\n")
    said = [path.read_text().splitlines() for path in sorted(folder.glob("said.*"))]
    for path in folder.glob("said.*"):
        path.unlink()
    return out, [line for lines in said for line in lines if line.startswith('{"type":"name"')]


def test_functions_are_asked_of_one_host(tmp_path: Path) -> None:
    """Of three hosts with a binary that this machine does not have, one names it, also behind gateways.

    The answer is that of a binary which is here, and stacks of all hosts are one key.
    """
    program = small_program.built(tmp_path, "layers", text=small_program.WAITING)
    private = tmp_path / "private"
    private.mkdir()
    with waiting(program) as process:
        here, asked = stacks_of(process, tmp_path, "--hosts", "a[1-3]")
    assert "middle+" in here
    assert "layers.c:" in here
    assert here.rstrip().endswith("]: 3"), here
    assert not asked
    with waiting(program, private) as process:
        there, asked = stacks_of(process, tmp_path, "--hosts", "a[1-3]")
    assert there == here
    assert len(asked) == 1, asked
    tree = topology(tmp_path, "g1,a3", "g1: a1,g2", "g2: a2")
    with waiting(program, private) as process:
        behind, asked = stacks_of(process, tmp_path, "--hosts", "a[1-3]", "--topology", tree)
    assert behind == here
    # Each gateway asks one of its hosts, and so does the controller.
    assert len(asked) <= 3, asked


def test_hosts_without_pytrace(tmp_path: Path) -> None:
    """What they need is sent, used once, and removed: a Python that is not this environment's runs the agent.

    One of them is behind a gateway, which has no pytrace either.
    """
    before = set(Path(tempfile.gettempdir()).glob("pytrace-push-*"))
    words = ("--push=once", "--agent", f"{sys.base_prefix}/bin/python3", "--worker", "exec", "--hosts", "a[1-2]")
    words = (*words, "--topology", topology(tmp_path, "g1", "g1: a2"))
    command = [sys.executable, "-m", "pytrace", "fleet", *words, "-e", COUNTING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as fleet:
        assert wait_for(fleet, "attached") == "attached on 2 of 2 hosts\n"
        call(11)
        fleet.send_signal(signal.SIGINT)
        out, error = fleet.communicate(timeout=patience(60))
    assert (fleet.returncode, out.strip(), error) == (0, "@: 22", "2 of 2 hosts answered\n")
    assert set(Path(tempfile.gettempdir()).glob("pytrace-push-*")) == before


def test_metrics_of_the_answer_so_far() -> None:
    """By host while the runs go on, and with the name of the label; the address is checked before any host is asked."""
    first = ("fleet", "--worker", "exec", "--agent", AGENT, "--hosts", "a[1-2]", "--by", "host", "--every", "0.5")
    with serving("-e", COUNTING, first=first) as run:
        run.wait_for("attached on 2 of 2 hosts")
        call(7)
        until(lambda: [run.values().get(("pytrace_map_total", (("host", name),))) for name in ("a1", "a2")] == [7, 7])
        call(4)
        until(lambda: run.values()["pytrace_map_total", (("host", "a2"),)] == 11)
        assert len(run.families()["pytrace_run"].samples) == 2
        port = run.url.rpartition(":")[2].partition("/")[0]
        with local("--hosts", "a1", "--metrics", f"127.0.0.1:{port}", "-e", COUNTING) as other:
            out, error = other.communicate(timeout=patience(60))
        assert (other.returncode, out) == (1, "")
        assert f"metrics cannot be served at 127.0.0.1:{port}: " in error
        assert run.end() == 0
    assert run.err[-1] == "2 of 2 hosts answered\n"
    assert sorted(line for line in run.out if line.strip()) == ["@[a1]: 11\n", "@[a2]: 11\n"]


@pytest.mark.needs("tmux")
def test_live_answers(tmp_path: Path) -> None:
    """The answer so far with who answered, the keys, Ctrl-C, and a view that is killed."""
    command = ("--worker", "exec", "--agent", AGENT, "--hosts", "a[1-2]", "--by", "host", "--every", "0.5")
    with terminal(tmp_path, 100, 30) as view:
        before, modes = view.settings(), view.modes()
        view.run("fleet", *command, "--live", "-e", COUNTING)
        view.shows("attached on 2 of 2 hosts", "0 of 2 hosts answered; 2 running", "? help")
        call(13)
        view.shows("2 rows")
        # Sorted by their totals, rows stay when nothing comes.
        view.press("s")
        view.shows("@, 2 rows", "13 a1", "13 a2")
        view.press("C")
        view.shows("maps are not reset here")
        view.press("w")
        view.shows("written: pytrace-")
        (saved,) = tmp_path.glob("pytrace-*.pts")
        assert file_form.read(str(saved)).maps["@"].entries == {"a1": 13, "a2": 13}
        call(4)
        view.shows("17 a1")
        view.press("C-c")
        assert view.status() == 0
        screen = view.screen()
        assert "@[a1]: 17" in screen
        assert "2 of 2 hosts answered" in screen
        assert view.settings() == before
        assert view.modes() == modes
        view.type("clear")
        view.run("fleet", *command, "--live", "-e", COUNTING)
        view.shows("2 running", "? help")
        os.kill(process_of_view(view), signal.SIGKILL)
        assert view.status() == 1
        assert "the live view failed (signal 9), so the run was ended" in view.screen()
        until(lambda: view.modes() == modes)


def process_of_view(view: Terminal) -> int:
    """The process that has the terminal: of the children of the command, the one that is a copy of it."""
    (shell,) = map(int, view._tmux("display-message", "-p", "#{pane_pid}").split())
    (run,) = procfs.children(shell)
    return next(child for child in procfs.children(run) if os.readlink(f"/proc/{child}/fd/0").startswith("/dev/pts/"))
