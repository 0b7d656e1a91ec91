"""Workloads do what they say: checked without a tracer where the kernel counts, else with the shortest script."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.network import End
from tests.support.server import Running, Server
from tests.support.workloads import (
    block,
    database,
    files,
    languages,
    lookups,
    memory,
    mounts,
    processes,
    scheduling,
    sockets,
    storage,
    terminal,
    tls,
)  # fmt: skip

pytestmark = pytest.mark.kernel
EACH_FILE_SYSTEM = pytest.mark.parametrize("kind", sorted(storage.SIZES))


def counted(server: Server, script: str, work: object) -> list[str]:
    """Lines that a script prints of what *work* does while it is attached."""
    assert callable(work)
    done = server.run(("-e", f"{script} interval:s:3600 {{ }}"), timeout=60, while_attached=lambda _: work(),
                      when_attached=("signal INT",))  # fmt: skip
    assert done.status == 0, done
    return [line for line in done.stdout.splitlines() if line]


# ------------------------------------------------------------------------------------------------ files and disks


@EACH_FILE_SYSTEM
def test_file_systems(kind: str) -> None:
    with storage.file_system(kind) as made:
        assert os.path.ismount(made.folder)
        before = written(made.disk)
        made_files = files.create(made.folder, [0, 5000, 100])
        assert [path.stat().st_size for path in made_files.files] == [0, 5000, 100]
        assert (made_files.bytes, made_files.calls) == (5100, 2)
        files.synchronize(made_files.files[1])
        assert written(made.disk) > before
        renamed = files.rename(files.read(made_files))
        assert files.unlink(renamed).files[0].name == "file0.new"
        assert not any(path.name.startswith("file") for path in made.folder.iterdir())
        where, device = made.folder, made.disk.path
    assert not where.exists()
    assert device not in Path("/proc/self/mounts").read_text()
    assert not Path(f"/sys/block/{made.disk.name}/loop/backing_file").exists()


def test_a_file_system_goes_away_after_a_failure() -> None:
    with pytest.raises(LookupError), storage.file_system("ext4") as made:
        raise LookupError
    assert not made.folder.exists()


def written(disk: storage.Disk) -> int:
    """Completed writes (Documentation/block/stat.rst)."""
    return int(Path(f"/sys/block/{disk.name}/stat").read_text().split()[4])


def test_direct_requests_are_requests_of_the_disk() -> None:
    with storage.loop_disk() as disk:
        path = Path(f"/sys/block/{disk.name}/stat")
        before = [int(word) for word in path.read_text().split()]
        block.perform(disk, block.sequential(10, 8192))
        assert block.perform(disk, block.scattered(5, 4096, write=True)) == 20480
        after = [int(word) for word in path.read_text().split()]
        assert [after[i] - before[i] for i in (4, 6)] == [5, 40]
        assert after[0] - before[0] >= 10  # udev may read from a new disk
        assert disk.number[0] == 7
    assert [request.sector for request in block.sequential(3, 4096)] == [0, 8, 16]


def test_an_array_is_flushed_and_goes_away() -> None:
    with storage.loop_disk() as disk, storage.software_raid(disk) as array:
        path = Path(f"/sys/block/{array.name}/stat")
        before = [int(word) for word in path.read_text().split()]
        block.synchronize(array.path)
        after = [int(word) for word in path.read_text().split()]
        assert after[4] - before[4] == 1
        assert after[6] - before[6] == 8  # sectors
    assert not path.exists()


def test_opens_and_stats(tmp_path: Path) -> None:
    opened, absent = files.open_some(tmp_path, 3, 2)
    assert (len(opened), len(absent)) == (3, 2)
    present, missing = files.stat(tmp_path, 2, 4)
    assert all(map(os.path.exists, present))
    assert not any(map(os.path.exists, missing))


def test_cold_and_warm_pages() -> None:
    with storage.file_system("ext4") as made:
        path = made.folder / "pages"
        files.pages(path, 20)
        stat = Path(f"/sys/block/{made.disk.name}/stat")
        reads = [int(stat.read_text().split()[2])]
        for _ in range(2):
            assert files.read_pages(path) == 20
            reads.append(int(stat.read_text().split()[2]))
        assert reads[1] - reads[0] >= 20 * files.PAGE // block.SECTOR
        assert reads[2] == reads[1]
        files.dirty_pages(path, 7)
        assert path.stat().st_size == 7 * files.PAGE


def test_sync_calls(server: Server, tmp_path: Path) -> None:
    need("syscalls")
    called: list[str] = []
    probes = ", ".join(f"t:syscalls:sys_enter_{name}" for name in ("sync", "fsync", "fdatasync", "syncfs"))
    script = f"{probes} /pid == {os.getpid()}/ {{ @[probe] = count(); }}"
    lines = counted(server, script, lambda: called.extend(files.sync_calls(tmp_path / "file")))
    assert sorted(lines) == sorted(f"@[tracepoint:syscalls:sys_enter_{name}]: 1" for name in called)


# ------------------------------------------------------------------------------------------------ processes


def test_processes(programs: Path) -> None:
    assert len({ended.pid for ended in processes.forks(3)}) == 3
    assert [ended.code for ended in processes.exits([0, 7])] == [0, 7]
    assert [ended.signal for ended in processes.dies_by([signal.SIGTERM, signal.SIGKILL])] == [15, 9]
    assert [ended.code for ended in processes.execs([["/bin/true"], ["/bin/sh", "-c", "exit 4"]])] == [0, 4]
    assert processes.failing_exec(programs / "nosuch").code == 3
    assert processes.kills(os.getpid(), [0, 0]) == 0
    assert processes.kills(processes.no_process(), [0, 15]) == 2
    assert processes.changes_user(65534).code == 1
    assert processes.wants_capability().code == 0
    assert processes.shell("echo $0").stdout == "/bin/sh\n"


def test_sleepers_and_waiters(server: Server, programs: Path) -> None:
    assert scheduling.naps(programs, 3, 10).nanoseconds >= 3 * 10_000_000
    waited = scheduling.contention(programs, 3, 10)
    assert waited.address > 1 << 16
    assert waited.nanoseconds > 0
    woken = scheduling.wakes(programs, 4)
    assert woken.sleeper > woken.waker > 1
    with scheduling.hogs(programs, 2) as hogs:
        places = [os.sched_getaffinity(pid) for pid in hogs]
        assert len(hogs) == 2
        assert places[0] == places[1]
        assert len(places[0]) == 1
    assert not any(os.path.exists(f"/proc/{pid}") for pid in hogs)


def test_futexes_wait(server: Server, programs: Path) -> None:
    need("syscalls")
    script = (
        't:syscalls:sys_enter_futex /comm == "contends" && (args.op & 127) == 0/ '
        "{ @[(uint64)args.uaddr] = count(); }"
    )  # FUTEX_WAIT
    seen = []
    lines = counted(server, script, lambda: seen.append(scheduling.contention(programs, 4)))
    assert f"@[{seen[0].address}]: 4" in lines


# ------------------------------------------------------------------------------------------------ memory


def test_leaks(server: Server, programs: Path) -> None:
    need("uprobe")

    def work() -> None:
        with memory.leaking(programs, 3, 4, 100) as leaking:
            assert leaking.bytes == 300

    program = programs / "leaks"
    lines = counted(server, f"u:{program}:keep {{ @kept = sum(arg1); }} u:{program}:use {{ @used = sum(arg0); }}", work)
    assert lines == ["@kept: 300", "@used: 400"]


def test_page_faults(programs: Path) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    assert memory.touched(programs, 500) > 1
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before >= 500


def test_swap() -> None:
    with memory.swap() as device:
        assert device in Path("/proc/swaps").read_text()
        assert memory.swapped_in(64) > 0
    assert device not in Path("/proc/swaps").read_text()


def test_out_of_memory(programs: Path) -> None:
    with memory.cgroup() as group:
        assert memory.out_of_memory(programs, group) > 1
    assert not group.exists()


def test_shared_memory_and_names() -> None:
    assert memory.shared_segment() >= 0
    with memory.many_names(5) as names:
        assert all(map(os.path.exists, names))
    assert not os.path.exists(names[0])


def test_mounts(server: Server) -> None:
    need("syscalls")
    made = []
    script = (
        "t:syscalls:sys_exit_mount { @[pid, args.ret] = count(); } t:syscalls:sys_enter_umount { @off[pid] = count(); }"
    )
    lines = counted(server, script, lambda: made.append(mounts.mounts(2)))
    assert made[0].folder not in Path("/proc/self/mounts").read_text()
    assert not os.path.exists(made[0].folder)
    pid = made[0].pid
    assert {f"@[{pid}, 0]: 3", f"@[{pid}, -2]: 1", f"@off[{pid}]: 2"} <= set(lines)


# ------------------------------------------------------------------------------------------------ network


@pytest.mark.parametrize("version", [sockets.IPV4, sockets.IPV6])
def test_connections(ends: tuple[End, End], version: int) -> None:
    client, server = ends
    made = sockets.connections(client, server, 2, sent=200_000, received=10, version=version)
    assert len({one.port for one in made}) == 2
    assert made[0].address == sockets.address(client, version)
    assert made[0].peer == sockets.address(server, version)
    assert sockets.refused(client, server, 2, version) > 0
    with sockets.waiting_to_be_accepted(client, server, 3, version=version) as port:
        assert port > 0


@pytest.mark.parametrize("version", [sockets.IPV4, sockets.IPV6])
def test_retransmits(ends: tuple[End, End], version: int) -> None:
    for _ in range(2):  # the link heals
        connection, times = sockets.retransmits(*ends, least=2, version=version)
        assert times >= 2
        assert connection.sent == 100


def test_datagrams_and_unix_sockets(ends: tuple[End, End]) -> None:
    sent = sockets.datagrams(*ends, count=4, size=1000)
    assert sent.port != sent.peer_port
    assert sockets.unix_messages([b"one", b"two"]) == os.getpid()


# ------------------------------------------------------------------------------------------------ programs of others


def test_bash_is_typed_into(server: Server) -> None:
    need("uprobe")
    script = f"ur:{os.path.realpath('/bin/bash')}:readline {{ @[pid, str(retval)] = count(); }}"
    typed = []
    lines = counted(server, script, lambda: typed.append(terminal.typed("true", "echo a b", "echo a b")))
    assert f"@[{typed[0]}, true]: 1" in lines
    assert f"@[{typed[0]}, echo a b]: 2" in lines


def test_look_ups(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    asked = []
    lines = counted(
        server, "u:libc:getaddrinfo { @[pid, str(arg0)] = count(); }",
        lambda: asked.append(lookups.look_up(tmp_path, ["localhost", "host.pytrace.test"])),
    )  # fmt: skip
    assert f"@[{asked[0]}, localhost]: 1" in lines
    assert f"@[{asked[0]}, host.pytrace.test]: 1" in lines


@pytest.mark.needs("openssl")
def test_tls(folder: Path) -> None:
    with tls.tls_server(folder) as server:
        assert tls.tls_client(server, "hello")[1] == "olleh"
        assert tls.tls_in_this_process(server, b"abc") == b"cba\n"


@pytest.mark.parametrize(
    ("language", "probe"),
    [
        ("python", "python:function__entry"),
        pytest.param("php", "php:function__entry", marks=pytest.mark.needs("php")),
        pytest.param("ruby", "ruby:method__entry", marks=pytest.mark.needs("ruby")),
    ],
)
def test_languages(server: Server, tmp_path: Path, language: str, probe: str) -> None:
    need("usdt")
    name = "arg1" if language != "php" else "arg0"
    with languages.program(tmp_path, language, calls=5) as program:
        script = f"usdt:{languages.probes(language)}:{probe} {{ @[str({name})] = count(); }} interval:s:3600 {{ }}"

        def work(_running: Running) -> None:
            program.work()

        done = server.run(("-p", str(program.pid), "-e", script), timeout=60, while_attached=work,
                          when_attached=("signal INT",))  # fmt: skip
    assert "@[inner]: 5" in done.stdout.splitlines(), done
    assert "@[outer]: 5" in done.stdout.splitlines()


@pytest.mark.needs("postgresql")
def test_postgresql(server: Server) -> None:
    need("usdt")
    with database.postgres() as made:
        lines = counted(
            server, f"usdt:{made.program}:postgresql:query__start {{ @[str(arg0)] = count(); }}",
            lambda: made.query("select 40 + 2", database.sleep(30), "select 40 + 2"),
        )  # fmt: skip
        assert made.query("select 40 + 2") == ["42"]
    assert "@[select 40 + 2]: 2" in lines
    assert f"@[{database.sleep(30)}]: 1" in lines
