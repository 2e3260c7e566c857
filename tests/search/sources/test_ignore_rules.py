"""Ignore rules against git itself on generated trees, and patterns that mean harm."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from quorank.search.sources.ignore_rules import DEFAULT_RULES, MOST_RULES_BYTES, IgnoreRules, RuleStack

NAMES = [
    "a", "b", "ab", "abc", "foo", "foobar", "a.txt", "b.md", "x[1]", "a b", "a ", "!c", "#d", "a-b", "A", "z\\y", "é", "]",
]  # fmt: skip
WORDS = r"""
    a b * ** ? [ab] [!a] [^b] [a-c] [[:alpha:]] [[:digit:]x] \* \a foo bar .txt .md \  ! # - []a] [a [ ] \ *** [[:foo:]]
    [\]] [a-] [--z] [!]] [[:a] [a/b] [[a] [!] [] []-a] [a-\]] [[:alpha:]-z] [[:a]-b] [a-c--z] [b-a] [!b-a] [[:punct:]]
    [[:space:]] [/] [!/] [[:] [[::]] [\a-c] \/
"""
ATOMS = [*WORDS.split(), " ", "\\ "]


def pattern(draw: random.Random) -> str:
    names = ["".join(draw.choices(ATOMS, k=draw.randrange(1, 4))) for _ in range(draw.randrange(1, 4))]
    names = [draw.choice(["**", "*", "a", "b"]) if draw.random() < 0.2 else name for name in names]
    found = "/".join(names) if draw.random() < 0.6 else names[0]
    before, behind = draw.choice(["", "", "", "/", "!"]), draw.choice(["", "", "", "/", " ", "\r"])
    return before + found + behind


def make_tree(root: Path, draw: random.Random) -> None:
    folders = [root]
    for _ in range(6):
        path = draw.choice(folders) / draw.choice(NAMES)
        if not path.exists():
            path.mkdir()
            folders.append(path)
    for _ in range(25):
        path = draw.choice(folders) / draw.choice(NAMES)
        if not path.exists():
            path.touch()
    for folder in folders:
        if folder == root or draw.random() < 0.4:
            rules = "\n".join(pattern(draw) for _ in range(draw.randrange(1, 5)))
            (folder / ".gitignore").write_bytes(rules.encode() + draw.choice([b"", b"\n"]))


def judge(root: Path) -> dict[bytes, bool]:
    """Each path of a tree, and whether the rules ignore it."""
    found: dict[bytes, bool] = {}

    def walk(folder: Path, below: bytes, rules: RuleStack, ignored: bool) -> None:
        own = folder / ".gitignore"
        if own.exists() and not ignored:
            rules = rules.below(below, [own.read_bytes()])
        for entry in os.scandir(folder):
            if entry.name != ".git":
                name = os.fsencode(entry.name)
                found[below + name] = ignored or rules.ignores(below + name, entry.is_dir())
                if entry.is_dir():
                    walk(Path(entry.path), below + name + b"/", rules, found[below + name])

    walk(root, b"", RuleStack(()), False)
    return found


@pytest.mark.slow
def test_git_says_the_same(tmp_path: Path) -> None:
    draw, ignored = random.Random(5), 0
    for number in range(150):
        root = tmp_path / str(number)
        (root / ".git" / "objects").mkdir(parents=True)  # what `git init` makes, as far as it is asked for here
        (root / ".git" / "refs").mkdir()
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        make_tree(root, draw)
        mine = judge(root)
        words = ["git", "-C", str(root), "check-ignore", "--no-index", "--stdin", "-z"]
        asked = b"".join(path + b"\0" for path in mine)
        done = subprocess.run(words, input=asked, capture_output=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        theirs = set(filter(None, done.stdout.split(b"\0")))
        rules = {path: (root / os.fsdecode(path)).read_bytes() for path in mine if path.endswith(b".gitignore")}
        assert {path for path, found in mine.items() if found} == theirs, rules
        ignored += len(theirs)
    assert ignored > 500  # of some four thousand paths


HARMFUL = (
    b"*a" * 60 + b"b",
    b"**/a/" * 60 + b"b",
    b"a*" * 60 + b"/c",
    b"[a-z]*" * 40 + b"!",
    b"*?" * 60,
    b"**/*a*a/" * 30,
)


@pytest.mark.parametrize("rule", HARMFUL)
def test_no_rule_takes_long(rule: bytes) -> None:
    rules = IgnoreRules(rule)
    begin = time.process_time()
    for path in (b"a" * 250, b"a/" * 2000 + b"a", b"/".join([b"a" * 200] * 20)):
        rules.verdict(path, False)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("rule", [b"[!a]" * 200, b"*[a-z]" * 150, b"**/" * 300, b"a/*b" * 200, b"[[:alpha:]]" * 90])
def test_no_file_of_rules_takes_long_to_read(rule: bytes) -> None:
    content = b"\n".join(b"%d" % number + rule for number in range(MOST_RULES_BYTES // len(rule)))
    begin = time.process_time()
    rules = IgnoreRules(content[:MOST_RULES_BYTES])
    for number in range(100):
        rules.verdict(b"some/path/%d" % number, False)
    assert time.process_time() - begin < 5


def test_the_usual_rules_leave_out_what_nobody_searches() -> None:
    rules = RuleStack.default()
    ignored = [".git/", ".cache/", "node_modules/", "__pycache__/", ".bashrc", "a.pyc", "letter.txt~", "Cache/"]
    for path in (*ignored, "letter.txt", "cache.md", "node_modules", "main.py", "photos/"):
        assert rules.ignores(f"deep/down/{path.rstrip('/')}".encode(), path.endswith("/")) == (path in ignored), path


def test_files_of_rules_go_before_the_usual_ones_and_near_ones_before_others() -> None:
    rules = RuleStack.default().below(b"", [b"*.log\n!.notes\n"])
    assert rules.ignores(b"a/other.log", False)
    assert not rules.ignores(b".notes", True)
    assert rules.ignores(b".other", True)
    nearer = rules.below(b"a/", [b"!other.log\n"])
    assert not nearer.ignores(b"a/other.log", False)
    assert IgnoreRules(DEFAULT_RULES) and not IgnoreRules(b"# nothing\n\n")
