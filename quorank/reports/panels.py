"""From runs to the panels of their learning curves."""

from __future__ import annotations

from collections.abc import Sequence

from quorank.reports.curves import Curve, Panel, block_means
from quorank.reports.runs import OFFLINE_MAXRR, OFFLINE_NDCG, ONLINE_MAXRR, ONLINE_NDCG, Group, aligned
from quorank.reports.statement import at_depth

TITLES = {
    OFFLINE_NDCG: "Offline nDCG@10",
    ONLINE_NDCG: "Online nDCG@10",
    OFFLINE_MAXRR: "Offline MaxRR",
    ONLINE_MAXRR: "Online MaxRR",
}
OF_ONE_ROUND = (ONLINE_NDCG, ONLINE_MAXRR)


def panels_of(
    groups: Sequence[Group], names: Sequence[str], columns: Sequence[str] = (OFFLINE_NDCG, ONLINE_NDCG)
) -> list[Panel]:
    """A panel per column that any run has, with a curve per setting under the name given for it."""
    panels = []
    for column in columns:
        curves, blocks = [], set()
        for group, name in zip(groups, names, strict=True):
            curve = Curve(name, *aligned(group.runs, column))
            if column in OF_ONE_ROUND:
                curve, block = block_means(curve)
                blocks.add(block)
            curves.append(curve)
        if any(len(curve.x) for curve in curves):
            longest = max(blocks, default=1)
            note = f"mean of {longest} rounds" if longest > 1 else ""
            title = at_depth(TITLES[column], groups[0].runs[0])
            panels.append(Panel(title, "interactions", note, tuple(curves)))
    return panels
