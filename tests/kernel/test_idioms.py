"""Block I/O by disk, as scripts have measured it for ten years: times kept by device and sector, histograms by disk."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.compile import SOURCES
from tests.support.leaks import Watch
from tests.support.machine import need
from tests.support.server import Server

READS, SIZE = 10, 4096


def disk_under(path: Path) -> str:
    """Key of the disk that *path* is on, as the script prints it; skips the test where there is none."""
    number = path.stat().st_dev
    entry = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not entry.exists():
        pytest.skip(f"{path} is on no disk")
    whole = entry.resolve().parent if (entry / "partition").exists() else entry
    return (whole / "dev").read_text().strip().replace(":", ", ")


@pytest.mark.kernel
def test_histograms_by_disk(server: Server, tmp_path: Path) -> None:
    need("tracepoint")
    key = disk_under(tmp_path)
    file = tmp_path / "data"
    with file.open("wb") as written:
        written.write(bytes(READS * SIZE))
        written.flush()
        os.fsync(written.fileno())
    command = ["dd", f"if={file}", "of=/dev/null", f"bs={SIZE}", f"count={READS}", "iflag=direct", "status=none"]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("files here cannot be read past the page cache")
    watch = Watch()
    script = (SOURCES / "disk_latency.bt").read_text()
    result = server.run(("-q", "-e", script, "-c", " ".join(command)), cwd=tmp_path, timeout=30)
    assert result.status == 0, result
    final = result.stdout[result.stdout.index("@bytes[") :]
    assert final.startswith(f"@bytes[{key}]: {READS * SIZE}\n"), result
    buckets = re.findall(r"^\[.* (\d+) \|", final[final.index(f"@us[{key}]") :], re.MULTILINE)
    assert sum(int(count) for count in buckets) == READS
    assert not watch.leaked()
