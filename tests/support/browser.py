"""One Chromium without a window for all tests that open HTML reports."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import patience

CHROMIUM = shutil.which("chromium")
OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run",
)  # fmt: skip

_LONGEST = 1000 * patience(30)
"""Milliseconds that the browser may take for anything."""

_open: list[Any] = []
"""The browser, and what drives it; empty until a test asks for it."""
_spare: list[Any] = []
"""A page that the next test may use: a new one is a process of its own."""


def _browser() -> Any:
    if not _open:
        from playwright.sync_api import sync_playwright

        driver = sync_playwright().start()
        _open[:] = [driver.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS), timeout=_LONGEST), driver]
    return _open[0]


def close() -> None:
    """End the browser. What drives it is an event loop of this thread, beside which pyroute2 has none of its own."""
    _spare.clear()
    while _open:
        resource = _open.pop(0)
        (resource.stop if not _open else resource.close)()


@contextmanager
def opened(path: Path, fragment: str = "", **options: Any) -> Iterator[Any]:
    """A page that shows a report, once it is drawn; an error of its script or a request for anything else fails.

    *fragment* is the end of the address (``#…``), *options* the ``viewport`` and the ``color_scheme``.
    """
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    page = _spare.pop() if _spare else _browser().new_page()
    page.set_default_timeout(_LONGEST)
    page.set_viewport_size(options.get("viewport", {"width": 1280, "height": 900}))
    page.emulate_media(media="null", color_scheme=options.get("color_scheme", "light"))
    errors: list[str] = []
    requests: list[str] = []
    listeners = {
        "pageerror": lambda error: errors.append(str(error)),
        "console": lambda message: errors.append(message.text) if message.type == "error" else None,
        "request": lambda request: requests.append(request.url),
        "dialog": lambda dialog: errors.append(f"dialog {dialog.message}"),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    try:
        page.mouse.move(0, 0)
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("html[data-ready]")
        yield page
        assert not errors
        assert [url.partition("#")[0] for url in requests if not url.startswith("blob:")] == [path.as_uri()]
    except BaseException:
        page.close()
        raise
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    page.goto("about:blank")
    _spare.append(page)


FRAMES = "number => document.querySelectorAll('div.flame')[number].frames()"


def frames(page: Any, number: int = 0) -> list[dict[str, Any]]:
    """The frames that a flame graph of the page draws."""
    found: list[dict[str, Any]] = page.evaluate(FRAMES, number)
    return found
