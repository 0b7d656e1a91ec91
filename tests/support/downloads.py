"""Where ``scripts/setup.sh`` keeps what it downloads for tests."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def folder() -> Path:
    """Its cache: in the user's cache folder, or the checkout's where there is no home directory."""
    home = Path(os.environ.get("HOME") or "/root")
    return Path(os.environ.get("XDG_CACHE_HOME") or (home / ".cache" if home.is_dir() else ROOT / ".cache")) / "pytrace"
