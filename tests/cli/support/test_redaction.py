"""pytrace.cli.support.redaction: names of hosts, users and home directories."""

from __future__ import annotations

import os
import pwd

import pytest

from pytrace.cli.support.redaction import Redactor

ALICE = Redactor(("/srv/people/alice",), ("alice",), ("build7.example.org", "build7"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("uprobe:/srv/people/alice/app:main { }", "uprobe:HOME/app:main { }"),
        ("/srv/people/alice2/x", "/srv/people/alice2/x"),
        ("import \"/home/bob/lib.bt\"; '/home/carol'", "import \"HOME/lib.bt\"; 'HOME'"),
        ("on build7 as alice: malice, alice_x, build77", "on HOST as USER: malice, alice_x, build77"),
        ("at build7.example.org.", "at HOST."),
        (r'c"\22build7 alice\00"', r'c"\22HOST USER\00"'),
        (r'"\nalice\u001bbuild7"', r'"\nUSER\u001bHOST"'),
        ("nothing /root/x root localhost", "nothing /root/x root localhost"),
    ],
)
def test_names_in_texts(text: str, wanted: str) -> None:
    assert ALICE.text(text) == wanted


def test_binary_files_keep_their_length() -> None:
    data = b"\x7fELF\0/srv/people/alice/a.bt\0build7\0/home/bob/b.bt\0alice_probe\0"
    found = ALICE.binary(data)
    assert len(found) == len(data)
    assert found == b"\x7fELF\0" + b"x" * 17 + b"/a.bt\0xxxxxx\0" + b"x" * 9 + b"/b.bt\0alice_probe\0"


def test_names_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user behind sudo is one of them; root and what is too short to be told apart are not."""
    entries = [
        pwd.struct_passwd(("root", "x", 0, 0, "", "/root", "/bin/sh")),
        pwd.struct_passwd(("alice", "x", 1000, 1000, "", "/srv/people/alice", "/bin/sh")),
        pwd.struct_passwd(("bob", "x", 1001, 1001, "", "/srv/people/bob", "/bin/sh")),
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        os, "uname", lambda: os.uname_result(("Linux", "build7.example.org", "6.1", "#1", "x86_64"))
    )
    found = Redactor.of_machine({"USER": "root", "SUDO_USER": "alice", "HOME": "/root", "LOGNAME": "x"})
    assert found == Redactor(("/srv/people/alice",), ("alice",), ("build7.example.org", "build7"))
