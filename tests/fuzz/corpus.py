"""The kept corpus: inputs of each target that together reach what fuzzing has reached, and those that found defects."""

from __future__ import annotations

from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def kept(name: str) -> list[tuple[str, bytes]]:
    """The inputs of a target, by the name of their file."""
    return [(path.name, path.read_bytes()) for path in sorted((CORPUS / name).glob("*"))]
