"""Examples of every part of every family, and values that they refuse. A new part adds its lines here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from quorank.data.partition import PARTITIONS, Assigned, Clicks, Even, LabelSplit, LogUsers, Preferences, Quantity
from quorank.federation import (
    AGGREGATIONS,
    PARTICIPATIONS,
    PERSONALISATIONS,
    SERVERS,
    Adam,
    Add,
    Arrivals,
    Full,
    Krum,
    LocalOffset,
    Mean,
    Median,
    Momentum,
    MultiKrum,
    OutputLayer,
    Poisson,
    Rprop,
    Sampled,
    Shared,
    TrimmedMean,
)
from quorank.federation.attacks import (
    ATTACKS,
    ClickPoisoning,
    Fang,
    InnerProduct,
    Lies,
    LittleIsEnough,
    Mimic,
    MinMax,
    MinSum,
    Scaled,
    SignFlip,
    Tailored,
)
from quorank.federation.rules import Bulyan, CentredClipping, GeometricMedian, Mixing, SpectralFilter
from quorank.learning import DBGD, LEARNERS, MGD, PDGD, Counterfactual, Evolution, LambdaMART, PairRank
from quorank.parts import Family
from quorank.privacy import (
    PRIVACIES,
    ClippedGaussian,
    NoPrivacy,
    PublishedLaplace,
    RandomisedResponse,
    SecureSum,
    Signs,
)
from quorank.rankers import MLP, RANKERS, Linear, Trees
from quorank.search.sources import SOURCES, ChromiumSource, FilesSource, FirefoxSource, MailSource
from quorank.text import Features, Tokeniser
from quorank.tuning.rules import (
    CLOSINGS,
    GUARDS,
    RELEASES,
    Count,
    GradientRelease,
    ImmediateGuard,
    JudgedGuard,
    SignRelease,
    Stable,
    Time,
)
from quorank.users import CLICK_MODELS, Cascade, LoggedClicks, PositionBased, TrustBias, UserBrowsing

FAMILIES: dict[str, Family[Any]] = {
    "rankers": RANKERS,
    "users": CLICK_MODELS,
    "learners": LEARNERS,
    "privacies": PRIVACIES,
    "aggregations": AGGREGATIONS,
    "participations": PARTICIPATIONS,
    "servers": SERVERS,
    "personalisations": PERSONALISATIONS,
    "partitions": PARTITIONS,
    "attacks": ATTACKS,
    "sources": SOURCES,
    "releases": RELEASES,
    "closings": CLOSINGS,
    "guards": GUARDS,
    "tokenisers": Family("tokeniser", Tokeniser),
    "features": Family("feature set", Features),
}

EXAMPLES: dict[str, list[Any]] = {
    "rankers": [
        Linear(),
        Linear(start={1: 20.0, "4": -0.1 - 0.2}, start_scale=0.7),
        Linear(start=(1.0, -2.0, 0.0, 1 / 3)),
        MLP(),
        MLP(hidden=10, start="zero"),
        MLP(hidden=1),
        MLP(activation="sigmoid"),
        MLP(hidden=2, start={3: 5.0}),
        MLP(hidden=1, start=(1.0, -2.0, 0.0, 0.25, 0.5, -1.0), start_scale=2.0),
        Trees(),
        Trees(leaves=2, trees=3),
    ],
    "users": [
        *(Cascade(preset=name) for name in ("perfect", "navigational", "informational", "poison")),
        Cascade(preset="navigational", grades=5),
        Cascade(click=(0.0, 0.25, 1.0), stop=(0.5, 0.0, 1.0)),
        *(PositionBased(eta=eta) for eta in (0.0, 0.5, 1.0, 1.5, 2.0)),
        PositionBased(eta=0.1, preset="informational", click=(0.0, 0.1, 0.2, 0.3, 0.4)),
        TrustBias(),
        TrustBias(eta=0.5, relevance=(0.1, 0.5, 0.6, 0.7, 1.0), epsilon_plus=(0.9, 0.8), epsilon_minus=(0.5,)),
        UserBrowsing(),
        UserBrowsing(eta=0.3, preset="navigational", click=(0.0, 0.1, 0.2, 0.3, 0.4)),
        LoggedClicks(),
    ],
    "learners": [
        PDGD(),
        PDGD(eta=1e-30, step="batch"),
        PDGD(eta=1 / 3),
        PDGD(temperature=0.3, share=0.5),
        PDGD(temperature=100.0, window=1),
        Counterfactual(),
        Counterfactual(loss="listwise", estimator="snips", power=0.5, step="batch"),
        Counterfactual(estimator="dr", propensities=(1.0, 0.5) + 8 * (0.25,), clip=0.5, window=2, share=0.1),
        DBGD(),
        DBGD(delta=0.5, gamma=0.1),
        MGD(),
        MGD(candidates=2, winner="one", alpha=0.1),
        PairRank(),
        PairRank(eta=0.3, alpha=0.5, ridge=0.1, growth=0.0),
        Evolution(),
        Evolution(sigma=0.3, metric="ndcg"),
        LambdaMART(),
        LambdaMART(eta=1 / 3, depth=2, norm=False, splits="random", batch=7, ridge=0.1),
        LambdaMART(feedback="clicks", propensities=(1.0, 0.5, 0.25), clip=0.3),
    ],
    "privacies": [
        NoPrivacy(),
        RandomisedResponse(),
        RandomisedResponse(p=0.25, per="interaction"),
        ClippedGaussian(epsilon=30.0, accountant="rdp"),
        ClippedGaussian(clip=0.3, noise_multiplier=1.5),
        ClippedGaussian(noise_multiplier=0.5, clip=0.1 + 0.2, quantile=0.5, clip_rate=0.1),
        PublishedLaplace(),
        PublishedLaplace(epsilon=1.2, sensitivity=3.0),
        SecureSum(),
        SecureSum(clip=0.5, masks=False, dropouts=0.3),
        ClippedGaussian(noise_multiplier=1.5, sum="secure"),
        ClippedGaussian(noise_multiplier=1.5, sum="secure", masks=False, dropouts=0.2),
        Signs(),
        Signs(p=0.75, size=0.1),
    ],
    "aggregations": [
        Mean(),
        Krum(),
        MultiKrum(byzantine=2),
        TrimmedMean(byzantine=2),
        Median(),
        Median(byzantine=3),
        Bulyan(),
        CentredClipping(),
        CentredClipping(radius=0.5, iterations=2),
        GeometricMedian(),
        Mixing(),
        Mixing(byzantine=2, then="median"),
        Mixing(byzantine=3, history=0.9),
        SpectralFilter(),
        SpectralFilter(byzantine=3, history=0.98),
    ],
    "personalisations": [Shared(), LocalOffset(), LocalOffset(rate=0.25, decay=0.1), OutputLayer()],
    "partitions": [
        Even(),
        Preferences(),
        Preferences(overlap=0.25, preferences=2, quantity=(2, 4)),
        Preferences(iid=True),
        LabelSplit(),
        LabelSplit(per_client=2),
        LabelSplit(iid=True),
        LabelSplit(shared=0.1),
        LabelSplit(per_client=2, shared=0.5, quantity=(1, 3)),
        Clicks(),
        Clicks(model="position", iid=True),
        Quantity(),
        Quantity(counts=(2, 4)),
        LogUsers(),
        LogUsers(least=3, without=("u1", "u 2"), order="arrival", together=7, minutes=1.5, iid=True),
        Assigned(clients=(0, 2, 1, 0)),
    ],
    "sources": [
        FilesSource(),
        FilesSource("/people/ann/caf\uf7e9"),
        MailSource(),
        MailSource("/people/ann/Mail"),
        FirefoxSource(),
        FirefoxSource("/people/ann/places.sqlite"),
        ChromiumSource(),
    ],
    "attacks": [
        ClickPoisoning(),
        LittleIsEnough(clients=3),
        LittleIsEnough(clients=3, knowledge="full"),
        Fang(clients=2),
        Fang(clients=3, knowledge="full", against="trimmed-mean"),
        Fang(clients=3, knowledge="full", against="median"),
        SignFlip(),
        SignFlip(clients=2, z=0.5),
        Scaled(clients=2, factor=-3.0),
        InnerProduct(),
        InnerProduct(clients=2, knowledge="partial", factor=10.0),
        MinMax(clients=3),
        MinMax(clients=3, knowledge="partial", direction="sign"),
        MinSum(clients=3, direction="deviation"),
        Mimic(clients=2),
        Mimic(clients=2, victim="farthest"),
        Tailored(clients=3),
        Tailored(clients=2, against="memory", apart=True, decoys=True),
        Lies(),
        Lies(clients=2, sends="words"),
    ],
    "participations": [
        Full(),
        Sampled(),
        Sampled(cohort=1),
        Poisson(rate=0.7),
        Poisson(rate=1.0),
        Arrivals(),
        Arrivals(enough=12, least=3, minutes=7.5, most=2, rest=1, rate=0.2, amplitude=0.5, period=3.0, zones=1.0),
    ],
    "servers": [
        Add(),
        Add(step=0.1 + 0.2),
        Add(step=2.0, average=1.0),
        Add(step=0.1 + 0.2, average=-1.0, among=(1.0, -1 / 3)),
        Add(average=0.0, among=(-0.5,), shrink=1.5),
        Add(step=2.0, pull=0.1),
        Add(step=3.0, average=-0.5, shrink=1.0, pull=0.1 + 0.2),
        Momentum(step=2.0, beta=0.0),
        Adam(),
        Adam(step=1.0, beta1=0.5, beta2=0.25, tiny=1e-3),
        Rprop(),
        Rprop(initial=0.02, alpha=1.5, beta=0.4, least=0.001, most=0.5),
    ],
    "releases": [GradientRelease(), SignRelease(), SignRelease(bits=1)],
    "closings": [Count(), Count(37), Time(), Time(1 / 3), Stable(), Stable(known=2.0, least=2, most=9)],
    "guards": [ImmediateGuard(), JudgedGuard(), JudgedGuard(bound=0.02, sure=0.0, surely=1 / 3, most=2, halvings=0)],
    "tokenisers": [Tokeniser(), Tokeniser("none"), Tokeniser("none", "french"), Tokeniser("german", "porter")],
    "features": [Features(), Features(bm25="published", idf="published"), Features(k1=2.0, idf_over="query")],
}

_REFUSED = """
rankers mlp: hidden = 0 | hidden = true | start = "one" | start_scale = 2.0 | activation = "tanh"
rankers linear: start = "zero" | start = { 1 = nan } | start_scale = "rule"
rankers trees: leaves = 1 | trees = -1
users cascade: preset = "lazy" | grades = 4 | click = [0.0, 0.5, 1.0] | stop = [0.0, 0.5, 1.0]
users cascade: click = [0.0, 0.5, 1.1]; stop = [0.0, 0.0, 0.0] | click = [0.0, nan, 1.0]; stop = [0.0, 0.0, 0.0]
users position: eta = -0.5 | eta = "1" | click = [2.0]
users trust-bias: eta = -1.0 | relevance = [0.0, 1.5] | epsilon_plus = [] | epsilon_minus = [-0.1]
users user-browsing: preset = "lazy" | click = [2.0]
learners pdgd: eta = 0.0 | eta = nan | eta = true | step = "epoch" | temperature = 0.0 | window = 0 | share = 0.0
learners pdgd: proximal = -1.0
learners counterfactual: eta = 0.0 | clip = 0.0 | share = -0.1 | power = -1.0 | reach = 0 | propensities = [1.0, 0.0]
learners counterfactual: estimator = "guess"
learners dbgd: delta = 0.0
learners mgd: candidates = 0 | alpha = 0.0 | winner = "all"
learners pairrank: eta = 0.0 | alpha = 0.0 | ridge = 0.0
learners evolution: sigma = 0 | metric = "map"
learners lambdamart: eta = 0.0 | depth = 0 | bins = 1 | least_hessian = -1.0 | sigmoid = 0.0 | truncation = 0
learners lambdamart: batch = 2 | clip = 0.0 | propensities = [0.0] | exploration = 0.0
privacies randomised-response: p = 0.0 | p = nan | per = "round"
privacies gaussian: epsilon = 0.0 | delta = 0.0 | clip = 0.0 | noise_multiplier = 0.0 | quantile = 1.0
privacies gaussian: clip_rate = 0.0 | accountant = "moments" | sum = "secure"; quantile = 0.5 | dropouts = 0.1
privacies gaussian: sum = "secure"; dropouts = 0.9
privacies secure-sum: clip = 0.0 | dropouts = -0.1
privacies published: epsilon = -1.0 | sensitivity = 0.0 | clip = 0.3
privacies signs: p = 0.5 | size = 0.0
aggregations krum: byzantine = -1
aggregations trimmed-mean: byzantine = -1
aggregations median: byzantine = 1.5
aggregations nearest-neighbour-mixing: history = 1.0
aggregations spectral-filter: history = 1.0
participations poisson: rate = 0.0
participations sampled: cohort = 0
participations arrivals: enough = 0 | enough = 5; least = 6 | least = 0 | minutes = 0.0 | minutes = inf | most = 0
participations arrivals: rest = -1 | rate = 0.0 | spread = -0.1 | period = 0.5 | amplitude = 1.0 | zones = 1.5
servers add: step = 0.0 | step = nan | average = -11.0 | average = 1.0; among = [0.0, 0.0]
servers add: average = 1.0; shrink = -1.0 | shrink = 1.0 | among = [0.0]
servers momentum: beta = 1.0 | step = -1.0
servers adam: beta1 = 1.0 | beta2 = 1.5 | tiny = 0.0 | step = 0
personalisations offset: rate = 0.0 | decay = 1.0
partitions labels: per_client = 0 | shared = 1.0 | shared = nan
partitions quantity: shared = 0.1 | counts = []
partitions preferences: overlap = 1.5
partitions clicks: model = "dice"
partitions users: least = 0 | together = 0 | minutes = 0.0 | order = "alphabetical"
partitions assigned: clients = []
attacks clicks: clients = 0
attacks fang: knowledge = "none" | against = "mean"
attacks sign-flip: z = nan
attacks inner-product: factor = 0.0
attacks min-max: direction = "mean"
attacks mimic: victim = "last"
attacks tailored: against = "theta"
releases signs: bits = 3
closings count: updates = 0
closings time: seconds = 0.0
closings stable: known = 0.0 | least = 1 | most = 8
guards judged: bound = 0.0 | bound = 1.0 | sure = -1.0 | most = 1 | halvings = -1
tokenisers words: stemming = "englsh" | stop_words = "klingon"
features letor: k1 = 0.0 | b = 1.5 | delta = 1.5 | idf = "none" | idf_over = "document"
sources folder: path = "" | ignore = "*.log"
sources mail: path = ""
sources firefox: path = ""
sources chromium: path = 5
"""
"""Family and kind, and values of fields (TOML) that the part refuses, separated by bars."""


def _refused() -> Iterator[tuple[str, dict[str, Any]]]:
    for line in _REFUSED.strip().splitlines():
        part, _, values = line.partition(": ")
        family, kind = part.split()
        for fields in values.split(" | "):
            yield family, {"kind": kind} | tomllib.loads(fields.replace("; ", "\n"))


REFUSED = list(_refused())
