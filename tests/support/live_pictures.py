"""Pictures of the live view for docs/operate/live.md, as ``scripts/screenshots`` makes them.

The data are made up, with a fixed seed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from pytrace.live.app import LiveApp
from pytrace.live.messages import Lines, Meters, Start, State
from tests.support.live_samples import counts, histogram, state, total

_NAMES = ("nginx", "postgres", "python3", "bash", "sshd", "systemd", "cron", "node")
_METERS = Meters(elapsed=0, hits=48_213, lost=0, losing=0, own=0.011, programs=0.018, interval=1)


def states(count: int) -> list[State]:
    """States of a run that counts system calls and measures their latency."""
    source = random.Random(7)
    calls, latency, found = dict.fromkeys(_NAMES, 0), dict.fromkeys(range(6, 20), 0), []
    for second in range(1, count + 1):
        for number, name in enumerate(_NAMES):
            calls[name] += source.randrange(9000 >> number, 12000 >> number)
        for _ in range(400):
            middle = 9 + (second // 12 % 2) * 4
            latency[min(max(round(source.gauss(middle, 1.6)), 6), 19)] += 1
        table = replace(counts("@calls", dict(calls.items())), key_names=("comm",), help="Who makes system calls?")
        maps = (table, total("@opens", sum(calls.values())), histogram("@usecs", {None: latency}))
        meters = Meters(second, _METERS.hits, 0, 0, _METERS.own, _METERS.programs, 1)
        found.append(state(second, *maps, meters=meters))
    return found


LOG = b"".join(b"12:00:%02d nginx reloaded worker %d\n" % (number, number) for number in range(1, 9))


async def _picture(size: tuple[int, int], keys: Sequence[str], seconds: int = 90) -> str:
    app = LiveApp(Start("syscalls.bt", unicode=True, colour=True), lambda _command: None)
    async with app.run_test(size=size) as pilot:
        app.take([*states(seconds), Lines(LOG)])
        app._share = 0.009
        await pilot.press(*keys)
        app.redraw()
        await pilot.pause()
        return app.export_screenshot(title="pytrace --live syscalls.bt")


PICTURES = {"live.svg": ((110, 32), ("h",)), "live-80x24.svg": ((80, 24), ("right", "h", "z"))}


MOVING = "live-moving.svg"
_FRAMES = ((60, ()), (64, ()), (68, ()), (72, ("h",)), (76, ("h",)), (80, ("h",)))
"""Seconds of the run, and keys that were pressed, of each frame of the moving picture."""
_ANIMATION = (
    "@keyframes frame { 0% { visibility: visible } %.2f%% { visibility: hidden } 100%% { visibility: hidden } }"
    " .frame { animation: frame %ds steps(1) infinite }"
)


def _moving() -> str:
    """Frames one after another, by CSS alone, as pictures in documents run no scripts."""
    frames = [asyncio.run(_picture((100, 28), keys, seconds)) for seconds, keys in _FRAMES]
    box = frames[0].partition('viewBox="')[2].partition('"')[0]
    style = _ANIMATION.replace("0%", "0%%", 1) % (100 / len(frames), len(frames))
    shown = "\n".join(
        f'<g class="frame" style="animation-delay: {number - len(frames)}s">{frame}</g>'
        for number, frame in enumerate(frames)
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}"><style>{style}</style>\n{shown}\n</svg>\n'


def main(folder: Path) -> None:
    """Write the pictures."""
    (folder / MOVING).write_text(_moving(), encoding="utf-8")
    for name, (size, keys) in PICTURES.items():
        (folder / name).write_text(asyncio.run(_picture(size, keys)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
