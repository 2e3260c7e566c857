"""Click log as a collection: clicks are labels, the last fifth of the searches in time is the test split.

The split is by time over the whole log, before users are selected: no ranker is tested on searches that are older
than some that it learned from. With a selection of users, the lists of the training split stand user by user, each user's
in order of time; without one all stand in order of time. A log without times is taken in the order in which it stands.
"""

from __future__ import annotations

import numpy as np

from quorank.data.logs.click_log import NOBODY, ClickLog
from quorank.data.logs.generated import LOG_SHAPES, generated_log
from quorank.data.logs.records import LoggedSplits, SearchRecords, UserSelection
from quorank.data.ranking import Collection, RankingData, rows_of_lists, select_strings
from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Integers

TEST_SHARE = 0.2  # share of the latest searches that are the test split, as in AOL4FOLTR's own experiment


def log_collection(log: ClickLog, name: str, selection: UserSelection | None = None) -> Collection:
    """Return the searches of a log, or of some of its users, as a collection whose labels are clicks."""
    order = log.in_order()
    cut = log.n_searches - max(1, round(TEST_SHARE * log.n_searches))
    sentence = f"has {log.n_searches} searches; expected at least 2, one to learn from and one to test on"
    require(cut >= 1, "log.too-short", sentence, name)
    train, test = order[:cut], order[cut:]
    users, number = list(log.users), np.arange(len(log.users), dtype=np.int64)
    if selection is not None:
        chosen = _selected(log, train, selection, name)
        number = np.full(len(log.users), NOBODY, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        users = [users[who] for who in chosen.tolist()]
        train, test = (part[number[log.user[part]] != NOBODY] for part in (train, test))
        train = train[np.argsort(number[log.user[train]], kind="stable")]
        sentence = "none of the chosen users searches in the last fifth of the log; take more users"
        require(len(test), "log.no-test", sentence, name)
    found = [_split(log, part, number, users, name) for part in (train, test)]
    return Collection(name, found[0][0], found[1][0], log=LoggedSplits(found[0][1], found[1][1]))


def _selected(log: ClickLog, train: Integers, selection: UserSelection, name: str) -> Integers:
    """Return the busiest users, of equals the first to search, in the order of their first search."""
    require(log.has_users, "log.no-users", 'names no users, and partition.kind = "users" needs them', name)
    counts = np.bincount(log.user[train], minlength=len(log.users))
    _, first = np.unique(log.user[train], return_index=True)
    appeared = log.user[train][np.sort(first)].astype(np.int64)
    unwanted = {*selection.without}
    unknown = next((who for who in selection.without if who not in {*log.users}), None)
    require(unknown is None, "log.unknown-user", f"has no user {unknown}, who is to be left out", name)
    kept = np.array([log.users[who] not in unwanted for who in appeared.tolist()], dtype=np.bool_)
    eligible = appeared[kept & (counts[appeared] >= selection.least)]
    require(
        len(eligible) >= max(1, selection.most or 1), "log.too-few-users", _too_few(eligible, counts, selection), name
    )
    busiest = np.argsort(-counts[eligible], kind="stable")[: selection.most]
    return eligible[np.sort(busiest)]


def _too_few(eligible: Integers, counts: Integers, selection: UserSelection) -> str:
    """Return the sentence for a selection of more users than the log has."""
    has = f"has {len(eligible)} users with at least {selection.least} searches to learn from"
    if not len(eligible):
        return f"{has}, and the busiest user has {int(counts.max())}; lower partition.least"
    return f"{has}; take federation.clients = {len(eligible)} or fewer, got {selection.most}"


def _split(
    log: ClickLog, searches: Integers, number: Integers, users: list[str], name: str
) -> tuple[RankingData, SearchRecords]:
    consecutive = bool((np.diff(searches) == 1).all())
    first, last = int(log.offsets[searches[0]]), int(log.offsets[searches[-1] + 1])
    rows, offsets = rows_of_lists(log.offsets, searches)
    padded = np.array(log.features[first:last]) if consecutive else log.features[rows]  # in memory, not mapped
    for start in range(0, len(padded), 65_536):
        if not np.isfinite(padded[start : start + 65_536]).all():
            raise BadInput("file.damaged", "damaged (a feature that is not finite); import the log again", name)
    named = select_strings(log.documents, rows)
    ids = [f"{log.searches[search]}" for search in searches.tolist()]
    clicks = np.ascontiguousarray(log.clicks[rows])
    data = RankingData(padded, clicks, offsets, len(log.feature_names), ids, named)
    who = log.user[searches].astype(np.int64)
    user = np.where(who == NOBODY, NOBODY, number[who]) if len(number) else who
    queries = [log.queries[search] for search in searches.tolist()]
    return data, SearchRecords(user, log.time[searches], log.ranks[rows], users, queries)


def generated_collection(name: str, queries: int | None, seed: int, selection: UserSelection | None) -> Collection:
    """Return `synthetic:name`, a generated log of about that many training searches."""
    shape = LOG_SHAPES[name]
    training = shape.queries if queries is None else queries
    require_range("queries", training, least=2, most=shape.most)
    log = generated_log(name, round(training / (1.0 - TEST_SHARE)), seed)
    return log_collection(log, f"synthetic:{name}", selection)
