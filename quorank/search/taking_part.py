"""Membership of a search in a federation: the device that learns with others, and trials of received rankers.

Choices are recorded with the `Client` of `quorank.member`, which sends releases and nothing else. The shared ranker is
the mean of the shipped ranker and all received ones, which is steadier than the newest. Each new mean is compared with
the present one on the person's own past choices first, and used only if it is not worse.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.errors import require
from quorank.files.atomic import expand_home
from quorank.search.ranking.choice_history import ChoiceHistory
from quorank.search.ranking.personal_part import ChosenList, PersonalFit, try_ranker
from quorank.search.ranking.search_features import SEARCH_FEATURES, shipped_parameters

if TYPE_CHECKING:
    from quorank.member import Client
    from quorank.member.sync import SyncReport

FOLDER, POLICY = "device", "policy.toml"


class TakingPart:
    """Device of a person in a federation, if there is one."""

    def __init__(self, folder: Path, history: ChoiceHistory, fit: PersonalFit) -> None:
        self.folder, self._history, self._fit = folder / FOLDER, history, fit
        self._client: Client | None = None
        self._mutex = RLock()

    @property
    def joined(self) -> bool:
        """Return whether a device exists."""
        from quorank.member.private_store import FILE

        return (self.folder / FILE).is_file()

    @property
    def client(self) -> Client:
        """The device, opened on first use."""
        with self._mutex:
            if self._client is None or self._client.closed:
                from quorank.member import Client

                sentence = "this search has not joined a federation; join with an invitation"
                require(self.joined, "device.missing", sentence)
                self._client = Client.open(self.folder, start=shipped_parameters())
            return self._client

    def join(self, invitation: Path | str) -> dict[str, Any]:
        """Accept an invitation; nothing is sent before consent is given. Return the status of the new device.

        The limits of `policy.toml` in the search's folder hold for the device, else those of `Policy()`.
        """
        from quorank.member import Client, Policy
        from quorank.member.membership import LEFT, left_note
        from quorank.protocol.invitation import Invitation
        from quorank.protocol.terms import Terms

        with self._mutex:
            path = expand_home(invitation).absolute()
            given = Invitation.read(path)
            require(given.kind == "device", "invitation.kind", "this invitation is not for a device", f"{path}")
            check_terms(Terms.read(given.terms), f"{path}")
            self.close()
            note = left_note(self.folder)
            if note is not None and note["erased"] is not None:  # after leaving, a person may join as a new device
                count = len([*self.folder.glob("left-*.json")])
                (self.folder / LEFT).rename(self.folder / f"left-{count + 1}.json")
            limits = self.folder.parent / POLICY
            policy = Policy.read(limits) if limits.exists() else None
            self._client = Client.open(self.folder, path, start=shipped_parameters(), policy=policy)
            return self.status() or {}

    def consent(self, given: bool) -> None:
        """Give or withdraw consent; without it nothing leaves."""
        with self._mutex:
            self.client.consent(given)

    def record(self, one: ChosenList, name: str) -> None:
        """Record a choice with the device, if there is one, under a name by which it can be forgotten."""
        with self._mutex:
            if not self.joined or len(one.features) < 2:
                return
            clicks = np.zeros(len(one.features), dtype=np.bool_)
            clicks[one.chosen] = True
            shown = self.client.present(one.features)
            self.client.record(shown, clicks[: len(shown.order)], name)

    def sync(self, *, force: bool = False) -> SyncReport:
        """Contact the service once, and try the received ranker.

        Searches continue meanwhile: the device has its own lock, and a slow network delays nothing else.
        """
        return self._after_contact(self.client.sync(force=force))

    def _after_contact(self, report: SyncReport) -> SyncReport:
        with self._mutex:
            if report.outcome == "left":
                self._client = None
                self._history.drop_shared()
            elif self.joined:
                self._try_newest()
        return report

    def _try_newest(self) -> None:
        """Add the newest ranker to the mean, and use the mean unless it is worse on the person's past choices."""
        found, present = self.client.store.ranker, self._history.shared
        if found is None or found.round <= self._history.last_tried(found.run):
            return
        mean, count = self._history.mean(found.run) or (shipped_parameters(), 1)
        mean = mean + (found.theta - mean) / (count + 1)
        lists = self._history.lists(self._fit.newest)
        trial = try_ranker(shipped_parameters() if present is None else present, mean, lists, self._fit)
        self._history.note_trial(time.time(), found.run, found.round, trial, mean, count + 1)

    def leave(self) -> SyncReport:
        """Withdraw: ask the service to forget this device, erase it, and restore the shipped ranker."""
        return self._after_contact(self.client.leave())

    def forget(self, names: Sequence[str]) -> None:
        """Erase choices from the device."""
        with self._mutex:
            if names and self.joined:
                self.client.forget(names)

    def erase(self) -> None:
        """Overwrite and delete the device, independent of the service."""
        with self._mutex:
            if self.joined:
                self.client.store.erase()
                self._client = None

    def status(self) -> dict[str, Any] | None:
        """Return the status of the device, also while another process runs it; None without one."""
        from quorank.member.client import device_status
        from quorank.member.private_store import PrivateStore

        with self._mutex:
            if not self.joined:
                return None
            if self._client is not None:
                return device_status(self._client.store)
            with PrivateStore(self.folder, owner=False) as store:
                return device_status(store)

    def close(self) -> None:
        """Close the device's file."""
        with self._mutex:
            if self._client is not None and not self._client.closed:
                self._client.close()
            self._client = None


def check_terms(terms: Any, where: str) -> None:
    """Raise BadInput for a federation with other features, or a learner that shuffles lists."""
    n = len(SEARCH_FEATURES)
    sentence = (
        f"this federation ranks by {terms.n_features} features, and a search has {n}; its operator starts it with "
        f"--experiment search --features {n}"
    )
    require(terms.n_features == n, "search.other-features", sentence, where)
    sentence = f"this federation learns by {terms.learner.kind}, which shuffles lists; expected counterfactual"
    require(terms.learner.takes_any_list, "search.other-learner", sentence, where)
