"""Scripts of tools about traffic for other kernels than this one: they compile, with the types of this kernel."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytrace.cli.main import main
from pytrace.runtime.load import features
from tests.support.tools import SCRIPTS

KINDS = ("fentry", "kprobe")


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("name", "tracepoint", "present", "expected"),
    [
        ("tcptop 5", "sock_send_length", ("fentry", "kprobe"), "fexit_vmlinux_tcp_recvmsg"),
        ("tcptop 5", "sock_send_length", ("kprobe",), "kretprobe_tcp_recvmsg"),
        ("tcptop 5", "sock_send_length", (), ""),
        ("tcprtt -b --extension", "tcp_probe", ("kprobe",), "kprobe_tcp_rcv_established"),
        ("tcprtt -b --extension", "tcp_probe", (), ""),
        ("udpsnoop -P 53", "", ("fentry", "kprobe"), "fentry_vmlinux_skb_consume_udp"),
        ("udpsnoop -P 53", "", ("kprobe",), "kprobe_skb_consume_udp"),
        ("udpsnoop -P 53", "", (), "rawtracepoint_vmlinux_sock_recv_length"),
        ("udpsnoop -P 53", "sock_send_length", (), ""),
    ],
)
def test_variants_compile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    name: str, tracepoint: str, present: tuple[str, ...], expected: str,
) -> None:  # fmt: skip
    """Without that tracepoint, and with these kinds of probes; *expected* is one of the programs, if there are any."""
    real = features.has
    monkeypatch.setattr(features, "has", lambda one: one in present if one in KINDS else real(one))
    tool, *options = name.split()
    shutil.copytree(SCRIPTS, tmp_path / "tools")
    script = tmp_path / "tools" / "network" / f"{tool}.bt"
    if tracepoint:
        script.write_text(script.read_text().replace(f"rawtracepoint:{tracepoint}", "rawtracepoint:no_such_event"))
    target = tmp_path / "compiled.o"
    status = main([str(script), *options, "--no-cache", "--unsafe", "--emit-elf", str(target)])
    said = capsys.readouterr().err
    if expected:
        assert status == 0, said
        assert not said
        assert expected.encode() in target.read_bytes()
    else:
        assert status == 1
        assert "kprobes" in said or "kprobe:" in said


@pytest.mark.kernel
def test_drops_without_reasons(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As before Linux 5.17."""
    shutil.copytree(SCRIPTS, tmp_path / "tools")
    script = tmp_path / "tools" / "network" / "skbdrop.bt"
    text = (
        script.read_text().replace("enum skb_drop_reason)", "enum no_such_reason)").replace("args, reason", "args, no")
    )
    script.write_text(text)
    for options in ([], ["-s", "1"]):
        status = main([str(script), *options, "--no-cache", "--emit-elf", str(tmp_path / "compiled.o")])
        said = capsys.readouterr().err
        assert (status, said) == (0, "")
