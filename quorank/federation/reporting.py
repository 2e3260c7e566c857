"""A coordinator whose clients report a figure about themselves with each release, privately (`privacy.figure_response`).

A reply's first statistic is the response, a whole number of steps; another one is refused like a false release. The
responses are summed exactly with the releases, and the round's report holds the unbiased mean over the cohort where a
simulated round's holds the true one (`online_ndcg`): so it is in the checkpoint, and a coordinator that is killed goes on
to the same figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorank.errors import require
from quorank.federation.coordinator import Coordinator
from quorank.federation.replies import Replies
from quorank.federation.rounds import Gathered
from quorank.privacy.mechanisms.figure_response import FigureResponse


@dataclass(eq=False)
class Reporting(Coordinator):
    """Every client of the run reports."""

    figure: FigureResponse | None = None

    def __post_init__(self) -> None:
        require(
            self.figure is not None,
            "reports.no-epsilon",
            "a reporting coordinator needs the epsilon of the reports",
        )
        super().__post_init__()

    def _empty(self) -> Replies:
        return Replies(
            self.mechanism, self.parameters, self.federation.aggregation.needs_single_updates, self.figure
        )

    def gathered(self) -> Gathered:
        """The accepted replies, summed, with the mean figure of their clients for each of the interactions."""
        found = super().gathered()
        assert self.figure is not None
        if found.clients == 0:
            return found
        return found._replace(ndcg=self.figure.unbiased(found.ndcg, found.clients) * found.interactions)
