"""Budget of questions and ε that an owner grants each asker, and the ledger in which the owner keeps count.

A budget bounds, for each asker, how many questions an owner answers and how much ε they add up to. The ledger is charged
before an answer leaves; a charge that would pass the budget is refused and changes nothing. Entries are whole numbers (ε
in millionths, rounded up), so the ledger adds up exactly, and it is checked when it is read. It only ever grows.

What adds up: answers with noise of their own by sequential composition, ε each (`each-answer`); what was made noisy when
it was built is charged once for a release, however often it is asked about (`at-build`). Parties that compare what they
were told have together the sum over the askers in the first case, and no more than one of them in the second. With
`exact` and `published` answers only the number of questions bounds anything.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require, require_range
from quorank.files.atomic import write_whole
from quorank.files.documents import read_json
from quorank.silos.protocol.group import check_name

FORMAT = 1
MILLIONTH = 1_000_000


@dataclass(frozen=True)
class Budget:
    """Most questions and ε that one asker may have of one owner."""

    questions: int = 10_000  # vectors of columns, decoys included
    epsilon: float | None = None  # no bound unless given

    def __post_init__(self) -> None:
        require_range("questions", self.questions, least=0)
        if self.epsilon is not None:
            require_range("epsilon", self.epsilon, least=0.0)


@dataclass(frozen=True)
class AnswerRelease:
    """What is released when questions are answered: its name and its ε, for each question or once for all of them."""

    name: str
    epsilon: float
    once: bool = False

    @property
    def millionths(self) -> int:
        """ε as it is written in decimals, in millionths and rounded up."""
        return math.ceil(Fraction(str(self.epsilon)) * MILLIONTH)


@dataclass
class Account:
    """What one asker was answered: questions by release."""

    questions: dict[tuple[str, int, bool], int]  # (release, millionths of ε, once) → questions

    @property
    def total(self) -> int:
        """Number of all questions."""
        return sum(self.questions.values())

    @property
    def millionths(self) -> int:
        """Σ ε over questions, and over releases that are charged once."""
        return sum(each * (min(count, 1) if once else count) for (_, each, once), count in self.questions.items())


class BudgetLedger:
    """Ledger of an owner's answers to all askers, kept in a file if a path is given; one process at a time charges it."""

    def __init__(self, owner: str, budget: Budget | None = None, path: Path | str | None = None) -> None:
        self.owner, self.budget = check_name(owner), budget or Budget()
        self.path = None if path is None else Path(path)
        self._accounts: dict[str, Account] = {}
        self.charges = self._again = 0  # charges that were made, and how many of them will be made again
        if self.path is not None and self.path.exists():
            self.charges, self._accounts = _read(self.path, owner)

    def questions(self, asker: str) -> int:
        """Return how many questions of this asker were answered."""
        return self._account(asker).total

    def epsilon(self, asker: str) -> float:
        """Return the ε that they add up to."""
        return self._account(asker).millionths / MILLIONTH

    def released(self, asker: str, name: str) -> int:
        """Return how often a release of this name was charged to this asker."""
        return sum(count for (release, _, _), count in self._account(asker).questions.items() if release == name)

    def begin_again(self, charges: int) -> None:
        """Repeat work that began after so many charges and was cut off: what it has charged is not charged again.

        The work must charge the same in the same order.
        """
        said = f"the ledger of {self.owner} holds fewer than {charges:,} charges"
        require(0 <= charges <= self.charges, "silo-ledger.too-few-charges", said)
        self._again = self.charges - charges

    def charge(self, asker: str, questions: int, release: AnswerRelease) -> None:
        """Charge questions that are about to be answered, or refuse; when this returns, the file says so."""
        said = f"{questions} questions of ε = {release.epsilon} cannot be charged; a ledger only grows"
        sound = isinstance(questions, int) and questions >= 1 and 0 <= release.epsilon < math.inf
        require(sound, "silo-ledger.negative-charge", said)
        if self._again:
            self._again -= 1
            return
        before = self._account(asker)
        key = (release.name, release.millionths, release.once)
        after = Account(before.questions | {key: before.questions.get(key, 0) + questions})
        limit, counted = self.budget, f"{before.total:,} of them are answered and {questions:,} more were asked"
        said = f"{self.owner} answers {asker} {limit.questions:,} questions, {counted}; ask for a larger budget"
        require(after.total <= limit.questions, "silo-budget.spent", said)
        if limit.epsilon is not None:
            most = math.floor(Fraction(str(limit.epsilon)) * MILLIONTH)
            spent, would = before.millionths / MILLIONTH, after.millionths / MILLIONTH
            counted = f"{spent:g} is spent and this would make {would:g}"
            said = f"{self.owner} spends ε = {limit.epsilon:g} on {asker}, {counted}; ask for a larger budget"
            require(after.millionths <= most, "silo-budget.spent", said)
        self._save(self.charges + 1, self._accounts | {check_name(asker): after})

    def _account(self, asker: str) -> Account:
        return self._accounts.get(asker, Account({}))

    def _save(self, charges: int, accounts: dict[str, Account]) -> None:
        if self.path is not None:
            there = _read(self.path, self.owner)[0] if self.path.exists() else 0
            said = f"holds {there:,} charges where {self.charges:,} were written"
            hint = "another process uses this ledger, or it was put back: stop and find out which"
            require(there == self.charges, "silo-ledger.changed", f"{said}; {hint}", str(self.path))
            write_whole(self.path, _written(self.owner, charges, accounts), durable=True)
        self.charges, self._accounts = charges, accounts

    def to_table(self) -> dict[str, Any]:
        """Return questions and ε of each asker."""
        return {
            asker: {"questions": account.total, "epsilon": account.millionths / MILLIONTH}
            for asker, account in sorted(self._accounts.items())
        }


def _written(owner: str, charges: int, accounts: Mapping[str, Account]) -> str:
    content: dict[str, Any] = {"format": FORMAT, "owner": owner, "charges": charges, "askers": {}}
    for asker, account in sorted(accounts.items()):
        content["askers"][asker] = {
            "questions": account.total,
            "millionths": account.millionths,
            "releases": [
                {"release": name, "millionths": each, "once": once, "questions": count}
                for (name, each, once), count in sorted(account.questions.items())
            ],
        }
    content["checksum"] = _checksum(content)
    return json.dumps(content, indent=1)


def _checksum(content: Mapping[str, Any]) -> str:
    named = {key: value for key, value in content.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:32]


def _read(path: Path, owner: str) -> tuple[int, dict[str, Account]]:
    try:
        content = read_json(path)
        sound = content["format"] == FORMAT and content["checksum"] == _checksum(content)
        accounts = {asker: _account(entry) for asker, entry in content["askers"].items()}
        charges, whose = int(content["charges"]), content["owner"]
    except (BadInput, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        sound = False
    if not sound:
        said = "damaged, or no ledger of budgets; restore it from a backup, or begin a new one in another file"
        raise BadInput("silo-ledger.damaged", said, str(path))
    said = f"is the ledger of {whose}, not of {owner}; give {owner} a file of its own"
    require(whose == owner, "silo-ledger.other-owner", said, str(path))
    return charges, accounts


def _account(entry: Mapping[str, Any]) -> Account:
    found = Account({})
    for line in entry["releases"]:
        key = (str(line["release"]), line["millionths"], line["once"])
        numbers = (line["millionths"], line["questions"])
        sound = all(type(n) is int and n >= 0 for n in numbers) and type(line["once"]) is bool
        if not sound or key in found.questions:
            raise ValueError
        found.questions[key] = line["questions"]
    if (found.total, found.millionths) != (entry["questions"], entry["millionths"]):
        raise ValueError
    return found
