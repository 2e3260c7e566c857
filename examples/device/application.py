"""Ranking that learns, in an application: `rank` shows a list, `record` takes in its clicks, `sync` talks to the service.

    python application.py FOLDER [INVITATION]

The folder is the device's own; the invitation is needed once. The service that it comes from must rank by five features
(`quorank coordinator start DIR --features 5 …`). Here a person searches among a few recipes.
"""

import sys

from quorank.member import Client, Policy

RECIPES = {
    "Tomato soup": "tomatoes onions garlic cream",
    "Garlic bread": "bread garlic butter parsley",
    "Tomato salad": "tomatoes onions oil basil",
    "Onion soup": "onions broth bread cheese",
    "Pasta with tomatoes": "pasta tomatoes garlic basil",
    "Potato soup": "potatoes leek cream broth",
}
SEARCHES = {"tomatoes garlic": "Pasta with tomatoes", "onions": "Onion soup", "cream": "Tomato soup"}


def features(query: str, title: str) -> list[float]:
    """Five numbers that say how a recipe fits a query: the same for every device of the run."""
    words, inside = set(query.split()), RECIPES[title].split()
    found = [word for word in inside if word in words]
    first = 1.0 / (1 + min((inside.index(word) for word in found), default=9))
    return [len(found), len(found) / len(words), first, float(any(w in title.lower() for w in words)), 1.0]


TRIAL = Policy(cohort=2, unstated=True)  # two devices without privacy; leave the policy out where real people take part

with Client.open(*sys.argv[1:3], policy=TRIAL) as client:
    if len(sys.argv) > 2:  # a new device; a later start asks nothing again
        print(*client.statement(), sep="\n", file=sys.stderr)  # for the person, who reads what leaves and agrees
        client.consent(True)
    titles = list(RECIPES)
    for query, wanted in SEARCHES.items():
        shown = client.rank([features(query, title) for title in titles])
        page = [titles[row] for row in shown.order]  # what the person sees, best first
        client.record(shown, [title == wanted for title in page])
    report = client.sync()  # in an application that stays open, again when report.next seconds have passed
    print(f"{report.outcome}: {report.sentence or f'{report.sent} bytes'}; ask again in {report.next:.0f} s")
