"""What can be typed next in a line of shell is found without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.programs.shell_completion import (
    MAX_COMPLETIONS,
    ShellKnowledge,
    complete_shell,
)


@pytest.fixture
def shell(tmp_path: Path) -> ShellKnowledge:
    """A shell in a folder with a few files, and a PATH with two programs."""
    home, programs, cwd = tmp_path / "home", tmp_path / "bin", tmp_path / "work"
    for folder in (home / "Documents", programs, cwd / "a b", cwd / "src"):
        folder.mkdir(parents=True)
    for name in ("git", "gitk"):
        (programs / name).write_text("")
        (programs / name).chmod(0o755)
    (programs / "gizmo.txt").write_text("")
    for name in ("it's", "$x", "naïve", "main.c", ".hidden", "two words", "src/x.c"):
        (cwd / name).write_text("")
    (cwd / "run.sh").write_text("")
    (cwd / "run.sh").chmod(0o755)
    return ShellKnowledge(
        cwd,
        {"PATH": str(programs), "HOME": str(home), "HOSTS": "x"},
        commands=("gist", "cd"),
        variables=("HOPE", "plain"),
    )


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("gi", ["gist", "git", "gitk"]),
        ("ls; git", ["git", "gitk"]),
        ("ls | gitk", ["gitk"]),
        ("ls && git", ["git", "gitk"]),
        ("$(gitk", ["gitk"]),
        ("sudo gitk", ["gitk"]),
        ("A=1 B=2 gitk", ["gitk"]),
        ("'gitk", ["'gitk'"]),
        ("", []),
        ("echo git", []),
        ("cat ma", ["main.c"]),
        ("cat src/", ["src/x.c"]),
        ("cat a", ["a\\ b/"]),
        ("cat 'a", ["'a b/"]),
        ('cat "a', ['"a b/']),
        ("cat 'two", ["'two words'"]),
        ("cat two\\ w", ["two\\ words"]),
        ("cat it", ["it\\'s"]),
        ("cat 'it", ["'it'\\''s'"]),
        ("cat \\$", ["\\$x"]),
        ("cat '$", ["'$x'"]),
        ("cat na", ["naïve"]),
        ("cat .h", [".hidden"]),
        ("cat <ma", ["main.c"]),
        ("cat >s", ["src/"]),
        ("x=ma", ["main.c"]),
        ("cc --input=ma", ["main.c"]),
        ("./", ["./a\\ b/", "./run.sh", "./src/"]),
        ("./r", ["./run.sh"]),
        ("ls ~/D", ["~/Documents/"]),
        ("ls $HOME/D", ["$HOME/Documents/"]),
        ('ls "${HOME}/D', ['"${HOME}/Documents/']),
        ("echo $HO", ["$HOME", "$HOPE", "$HOSTS"]),
        ("echo ${HOM", ["${HOME}"]),
        ('echo "$pl', ["$plain"]),
        ("echo '$pl", []),
        ("cat /no/such/folder/x", []),
        ("cat \0", []),
    ],
)
def test_what_fits_is_offered_as_it_has_to_be_typed(
    shell: ShellKnowledge, line: str, texts: list[str]
) -> None:
    assert [one.text for one in complete_shell(line, shell)] == texts


@pytest.mark.parametrize(
    ("line", "replaces", "shown"),
    [
        ("cat 'two wo", len("'two wo"), "two words"),
        ("cat src/x", len("src/x"), "x.c"),
        ("echo a$HOM", len("$HOM"), "$HOME"),
        ("x=ma", len("ma"), "main.c"),
        ("cat s", 1, "src/"),
    ],
)
def test_it_takes_the_place_of_the_word_that_was_begun(
    shell: ShellKnowledge, line: str, replaces: int, shown: str
) -> None:
    (one,) = complete_shell(line, shell)

    assert (one.replaces, one.shown) == (replaces, shown)


def test_many_names_are_cut(shell: ShellKnowledge, tmp_path: Path) -> None:
    for number in range(MAX_COMPLETIONS + 5):
        (tmp_path / "work" / f"zz{number}").write_text("")

    assert len(complete_shell("cat zz", shell)) == MAX_COMPLETIONS


def test_elsewhere_only_what_the_shell_has_said_is_offered(shell: ShellKnowledge) -> None:
    there = ShellKnowledge(shell.cwd, shell.environment, ("gcc",), (), is_here=False)

    assert [one.text for one in complete_shell("g", there)] == ["gcc"]
    assert complete_shell("cat ma", there) == []
