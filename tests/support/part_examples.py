"""Examples of every part of every family, and values that they refuse. A new part adds its lines here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from quorank import federation, learning, privacy, rankers, text, users
from quorank.data import partition
from quorank.federation import attacks, rules
from quorank.parts import Family
from quorank.search import sources
from quorank.tuning import rules as tuning

FAMILIES: dict[str, Family[Any]] = {
    "rankers": rankers.RANKERS,
    "users": users.CLICK_MODELS,
    "learners": learning.LEARNERS,
    "privacies": privacy.PRIVACIES,
    "aggregations": federation.AGGREGATIONS,
    "participations": federation.PARTICIPATIONS,
    "servers": federation.SERVERS,
    "personalisations": federation.PERSONALISATIONS,
    "partitions": partition.PARTITIONS,
    "attacks": attacks.ATTACKS,
    "sources": sources.SOURCES,
    "releases": tuning.RELEASES,
    "closings": tuning.CLOSINGS,
    "guards": tuning.GUARDS,
    "tokenisers": Family("tokeniser", text.Tokeniser),
    "features": Family("feature set", text.Features),
}

EXAMPLES: dict[str, list[Any]] = {
    "rankers": [
        rankers.Linear(),
        rankers.Linear(start={1: 20.0, "4": -0.1 - 0.2}, start_scale=0.7),
        rankers.Linear(start=(1.0, -2.0, 0.0, 1 / 3)),
        rankers.MLP(),
        rankers.MLP(hidden=10, start="zero"),
        rankers.MLP(hidden=1),
        rankers.MLP(activation="sigmoid"),
        rankers.MLP(hidden=2, start={3: 5.0}),
        rankers.MLP(hidden=1, start=(1.0, -2.0, 0.0, 0.25, 0.5, -1.0), start_scale=2.0),
        rankers.Trees(),
        rankers.Trees(leaves=2, trees=3),
    ],
    "users": [
        *(users.Cascade(preset=name) for name in ("perfect", "navigational", "informational", "poison")),
        users.Cascade(preset="navigational", grades=5),
        users.Cascade(click=(0.0, 0.25, 1.0), stop=(0.5, 0.0, 1.0)),
        *(users.PositionBased(eta=eta) for eta in (0.0, 0.5, 1.0, 1.5, 2.0)),
        users.PositionBased(eta=0.1, preset="informational", click=(0.0, 0.1, 0.2, 0.3, 0.4)),
        users.TrustBias(),
        users.TrustBias(eta=0.5, relevance=(0.1, 0.5, 0.6, 0.7, 1.0), epsilon_plus=(0.9, 0.8), epsilon_minus=(0.5,)),
        users.UserBrowsing(),
        users.UserBrowsing(eta=0.3, preset="navigational", click=(0.0, 0.1, 0.2, 0.3, 0.4)),
        users.LoggedClicks(),
    ],
    "learners": [
        learning.PDGD(),
        learning.PDGD(eta=1e-30, step="batch"),
        learning.PDGD(eta=1 / 3),
        learning.PDGD(temperature=0.3, share=0.5),
        learning.PDGD(temperature=100.0, window=1),
        learning.Counterfactual(),
        learning.Counterfactual(loss="listwise", estimator="snips", power=0.5, step="batch"),
        learning.Counterfactual(estimator="dr", propensities=(1.0, 0.5) + 8 * (0.25,), clip=0.5, window=2, share=0.1),
        learning.DBGD(),
        learning.DBGD(delta=0.5, gamma=0.1),
        learning.MGD(),
        learning.MGD(candidates=2, winner="one", alpha=0.1),
        learning.PairRank(),
        learning.PairRank(eta=0.3, alpha=0.5, ridge=0.1, growth=0.0),
        learning.Evolution(),
        learning.Evolution(sigma=0.3, metric="ndcg"),
        learning.LambdaMART(),
        learning.LambdaMART(eta=1 / 3, depth=2, norm=False, splits="random", batch=7, ridge=0.1),
        learning.LambdaMART(feedback="clicks", propensities=(1.0, 0.5, 0.25), clip=0.3),
    ],
    "privacies": [
        privacy.NoPrivacy(),
        privacy.RandomisedResponse(),
        privacy.RandomisedResponse(p=0.25, per="interaction"),
        privacy.ClippedGaussian(epsilon=30.0, accountant="rdp"),
        privacy.ClippedGaussian(clip=0.3, noise_multiplier=1.5),
        privacy.ClippedGaussian(noise_multiplier=0.5, clip=0.1 + 0.2, quantile=0.5, clip_rate=0.1),
        privacy.PublishedLaplace(),
        privacy.PublishedLaplace(epsilon=1.2, sensitivity=3.0),
        privacy.SecureSum(),
        privacy.SecureSum(clip=0.5, masks=False, dropouts=0.3),
        privacy.ClippedGaussian(noise_multiplier=1.5, sum="secure"),
        privacy.ClippedGaussian(noise_multiplier=1.5, sum="secure", masks=False, dropouts=0.2),
        privacy.Signs(),
        privacy.Signs(p=0.75, size=0.1),
    ],
    "aggregations": [
        federation.Mean(),
        federation.Krum(),
        federation.MultiKrum(byzantine=2),
        federation.TrimmedMean(byzantine=2),
        federation.Median(),
        federation.Median(byzantine=3),
        rules.Bulyan(),
        rules.CentredClipping(),
        rules.CentredClipping(radius=0.5, iterations=2),
        rules.GeometricMedian(),
        rules.Mixing(),
        rules.Mixing(byzantine=2, then="median"),
        rules.Mixing(byzantine=3, history=0.9),
        rules.SpectralFilter(),
        rules.SpectralFilter(byzantine=3, history=0.98),
    ],
    "personalisations": [
        federation.Shared(),
        federation.LocalOffset(),
        federation.LocalOffset(rate=0.25, decay=0.1),
        federation.OutputLayer(),
    ],
    "partitions": [
        partition.Even(),
        partition.Preferences(),
        partition.Preferences(overlap=0.25, preferences=2, quantity=(2, 4)),
        partition.Preferences(iid=True),
        partition.LabelSplit(),
        partition.LabelSplit(per_client=2),
        partition.LabelSplit(iid=True),
        partition.LabelSplit(shared=0.1),
        partition.LabelSplit(per_client=2, shared=0.5, quantity=(1, 3)),
        partition.Clicks(),
        partition.Clicks(model="position", iid=True),
        partition.Quantity(),
        partition.Quantity(counts=(2, 4)),
        partition.LogUsers(),
        partition.LogUsers(least=3, without=("u1", "u 2"), order="arrival", together=7, minutes=1.5, iid=True),
        partition.Assigned(clients=(0, 2, 1, 0)),
    ],
    "sources": [
        sources.FilesSource(),
        sources.FilesSource("/people/ann/caf\uf7e9"),
        sources.MailSource(),
        sources.MailSource("/people/ann/Mail"),
        sources.FirefoxSource(),
        sources.FirefoxSource("/people/ann/places.sqlite"),
        sources.ChromiumSource(),
    ],
    "attacks": [
        attacks.ClickPoisoning(),
        attacks.LittleIsEnough(clients=3),
        attacks.LittleIsEnough(clients=3, knowledge="full"),
        attacks.Fang(clients=2),
        attacks.Fang(clients=3, knowledge="full", against="trimmed-mean"),
        attacks.Fang(clients=3, knowledge="full", against="median"),
        attacks.SignFlip(),
        attacks.SignFlip(clients=2, z=0.5),
        attacks.Scaled(clients=2, factor=-3.0),
        attacks.InnerProduct(),
        attacks.InnerProduct(clients=2, knowledge="partial", factor=10.0),
        attacks.MinMax(clients=3),
        attacks.MinMax(clients=3, knowledge="partial", direction="sign"),
        attacks.MinSum(clients=3, direction="deviation"),
        attacks.Mimic(clients=2),
        attacks.Mimic(clients=2, victim="farthest"),
        attacks.Tailored(clients=3),
        attacks.Tailored(clients=2, against="memory", apart=True, decoys=True),
        attacks.TwoPhase(clients=3),
        attacks.TwoPhase(clients=3, before="memory", turn=100, after="axis"),
        attacks.Lies(),
        attacks.Lies(clients=2, sends="words"),
    ],
    "participations": [
        federation.Full(),
        federation.Sampled(),
        federation.Sampled(cohort=1),
        federation.Poisson(rate=0.7),
        federation.Poisson(rate=1.0),
        federation.Arrivals(),
        federation.Arrivals(
            enough=12, least=3, minutes=7.5, most=2, rest=1, rate=0.2, amplitude=0.5, period=3.0, zones=1.0
        ),
    ],
    "servers": [
        federation.Add(),
        federation.Add(step=0.1 + 0.2),
        federation.Add(step=2.0, average=1.0),
        federation.Add(step=0.1 + 0.2, average=-1.0, among=(1.0, -1 / 3)),
        federation.Add(average=0.0, among=(-0.5,), shrink=1.5),
        federation.Add(step=2.0, pull=0.1),
        federation.Add(step=3.0, average=-0.5, shrink=1.0, pull=0.1 + 0.2),
        federation.Momentum(step=2.0, beta=0.0),
        federation.Adam(),
        federation.Adam(step=1.0, beta1=0.5, beta2=0.25, tiny=1e-3),
        federation.Rprop(),
        federation.Rprop(initial=0.02, alpha=1.5, beta=0.4, least=0.001, most=0.5),
    ],
    "releases": [tuning.GradientRelease(), tuning.SignRelease(), tuning.SignRelease(bits=1)],
    "closings": [
        tuning.Count(),
        tuning.Count(37),
        tuning.Time(),
        tuning.Time(1 / 3),
        tuning.Stable(),
        tuning.Stable(known=2.0, least=2, most=9),
    ],
    "guards": [
        tuning.ImmediateGuard(),
        tuning.JudgedGuard(),
        tuning.JudgedGuard(bound=0.02, sure=0.0, surely=1 / 3, most=2, halvings=0),
    ],
    "tokenisers": [
        text.Tokeniser(),
        text.Tokeniser("none"),
        text.Tokeniser("none", "french"),
        text.Tokeniser("german", "porter"),
    ],
    "features": [
        text.Features(),
        text.Features(bm25="published", idf="published"),
        text.Features(k1=2.0, idf_over="query"),
    ],
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
attacks two-phase: before = "never" | turn = -1 | after = "memory"
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
