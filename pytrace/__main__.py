"""``python -m pytrace``."""

from pytrace.entry import command

if __name__ == "__main__":
    command()
