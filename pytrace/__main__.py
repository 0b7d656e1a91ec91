"""``python -m pytrace``."""

from pytrace.cli.entry import command

if __name__ == "__main__":
    command()
