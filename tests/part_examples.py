"""Examples of every part of every family, and values that they refuse. A new part adds its lines here."""

from __future__ import annotations

from typing import Any

from quorank.federation import AGGREGATIONS, PARTICIPATIONS, SERVERS, Adam, Add, Full, Mean, Momentum, Sampled
from quorank.learning import LEARNERS, PDGD, Evolution
from quorank.parts import Family
from quorank.privacy import PRIVACIES, NoPrivacy, RandomisedResponse
from quorank.rankers import MLP, RANKERS, Linear
from quorank.users import CLICK_MODELS, Cascade, PositionBased

NAN, INF = float("nan"), float("inf")

FAMILIES: dict[str, Family[Any]] = {
    "rankers": RANKERS,
    "users": CLICK_MODELS,
    "learners": LEARNERS,
    "privacies": PRIVACIES,
    "aggregations": AGGREGATIONS,
    "participations": PARTICIPATIONS,
    "servers": SERVERS,
}

EXAMPLES: dict[str, list[Any]] = {
    "rankers": [Linear(), MLP(), MLP(hidden=10, start="zero"), MLP(hidden=1)],
    "users": [
        *(Cascade(preset=name) for name in ("perfect", "navigational", "informational", "poison")),
        Cascade(preset="navigational", grades=5),
        Cascade(click=(0.0, 0.25, 1.0), stop=(0.5, 0.0, 1.0)),
        *(PositionBased(eta=eta) for eta in (0.0, 0.5, 1.0, 1.5, 2.0)),
        PositionBased(eta=0.1, preset="informational", click=(0.0, 0.1, 0.2, 0.3, 0.4)),
    ],
    "learners": [
        PDGD(),
        PDGD(eta=1e-30, step="batch"),
        PDGD(eta=1 / 3),
        Evolution(),
        Evolution(sigma=0.3, metric="ndcg"),
    ],
    "privacies": [NoPrivacy(), RandomisedResponse(), RandomisedResponse(p=0.25, per="interaction")],
    "aggregations": [Mean()],
    "participations": [Full(), Sampled(), Sampled(cohort=1)],
    "servers": [
        Add(),
        Add(step=0.1 + 0.2),
        Momentum(step=2.0, beta=0.0),
        Adam(),
        Adam(step=1.0, beta1=0.5, beta2=0.25, tiny=1e-3),
    ],
}

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("rankers", {"kind": "mlp", "hidden": 0}),
    ("rankers", {"kind": "mlp", "hidden": -1}),
    ("rankers", {"kind": "mlp", "hidden": 5000}),
    ("rankers", {"kind": "mlp", "hidden": 3.0}),
    ("rankers", {"kind": "mlp", "hidden": True}),
    ("rankers", {"kind": "mlp", "hidden": "64"}),
    ("rankers", {"kind": "mlp", "start": "one"}),
    ("users", {"kind": "cascade", "preset": "lazy"}),
    ("users", {"kind": "cascade", "grades": 4}),
    ("users", {"kind": "cascade", "click": [0.0, 0.5, 1.0]}),
    ("users", {"kind": "cascade", "stop": [0.0, 0.5, 1.0]}),
    ("users", {"kind": "cascade", "click": [0.0, 0.5, 1.1], "stop": [0.0, 0.0, 0.0]}),
    ("users", {"kind": "cascade", "click": [0.0, 0.5, 1.0], "stop": [0.0, -0.1, 0.0]}),
    ("users", {"kind": "cascade", "click": [0.0, NAN, 1.0], "stop": [0.0, 0.0, 0.0]}),
    ("users", {"kind": "cascade", "click": 0.5, "stop": 0.5}),
    ("users", {"kind": "cascade", "click": ["a"], "stop": ["b"]}),
    ("users", {"kind": "position", "eta": -0.5}),
    ("users", {"kind": "position", "eta": NAN}),
    ("users", {"kind": "position", "eta": INF}),
    ("users", {"kind": "position", "eta": "1"}),
    ("users", {"kind": "position", "click": [2.0]}),
    ("learners", {"kind": "pdgd", "eta": 0.0}),
    ("learners", {"kind": "pdgd", "eta": -0.1}),
    ("learners", {"kind": "pdgd", "eta": NAN}),
    ("learners", {"kind": "pdgd", "eta": INF}),
    ("learners", {"kind": "pdgd", "eta": True}),
    ("learners", {"kind": "pdgd", "eta": "0.1"}),
    ("learners", {"kind": "pdgd", "eta": None}),
    ("learners", {"kind": "pdgd", "step": "epoch"}),
    ("learners", {"kind": "evolution", "sigma": 0}),
    ("learners", {"kind": "evolution", "sigma": -1.0}),
    ("learners", {"kind": "evolution", "sigma": NAN}),
    ("learners", {"kind": "evolution", "sigma": INF}),
    ("learners", {"kind": "evolution", "metric": "map"}),
    ("privacies", {"kind": "randomised-response", "p": 0.0}),
    ("privacies", {"kind": "randomised-response", "p": 1.0}),
    ("privacies", {"kind": "randomised-response", "p": NAN}),
    ("privacies", {"kind": "randomised-response", "per": "round"}),
    ("participations", {"kind": "sampled", "cohort": 0}),
    ("participations", {"kind": "sampled", "cohort": -5}),
    ("participations", {"kind": "sampled", "cohort": 1.5}),
    ("servers", {"kind": "add", "step": 0.0}),
    ("servers", {"kind": "add", "step": NAN}),
    ("servers", {"kind": "add", "step": INF}),
    ("servers", {"kind": "momentum", "beta": 1.0}),
    ("servers", {"kind": "momentum", "beta": -0.1}),
    ("servers", {"kind": "momentum", "beta": NAN}),
    ("servers", {"kind": "momentum", "step": -1.0}),
    ("servers", {"kind": "adam", "beta1": 1.0}),
    ("servers", {"kind": "adam", "beta2": 1.5}),
    ("servers", {"kind": "adam", "tiny": 0.0}),
    ("servers", {"kind": "adam", "step": 0}),
]
