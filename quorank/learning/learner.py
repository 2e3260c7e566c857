"""Base classes of learners, and the loop of those written as methods, in NumPy or as kernels.

The methods `learn` and `show` are called from the compiled client loop: NumPy ones through a C callback with the arrays of
one list, kernels inlined. Draws are addressed, so a run has the same bits in every engine and with any number of threads.
"""

from __future__ import annotations

import ctypes
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers
from quorank.kernels.compiled import Intrinsic, Kernel, fixed_memory_kernel, kernel
from quorank.kernels.draws import fill_uniform
from quorank.learning.client_loop import Impression, LoopPlan, Work, World, client_loop, memory_for, play
from quorank.learning.plackett_luce import Buffers, fast_exp, sample_list, scaled_denominators
from quorank.learning.trees.growth import TreePlan

SHOW, LEARN = 0, 1


class ClickedList(NamedTuple):
    """A list as it was shown and clicked. Row i of each array belongs to the document at rank i + 1."""

    features: Doubles  # (k, d)
    clicks: Booleans  # (k,)
    scores: Doubles  # (k,) f_θ, from which the list was drawn
    propensity: Doubles  # (k,) P(document at its rank | documents above), FPDGD eq. 1; NaN if `show` is overridden
    ranks: Integers  # (k,) from 1


@dataclass(frozen=True)
class Learner(ABC):
    """Base class of learners: a frozen dataclass with a `kind` and a method `learn`, in NumPy or as a kernel.

    Override `learn`, and `show` for lists that are not drawn by Plackett-Luce. The other methods have defaults. Declare a
    learner in a notebook, in a module that an experiment file names (`kind = "my_module:ClickContrast"`), or as an entry
    point `learner.KIND` of the group `quorank.parts`. It then runs in every engine and grid.

    Methods decorated with `quorank.kernel` run at the speed of the built-in learners; they read only the fields of `self`
    that are numbers.

    >>> from dataclasses import dataclass, fields
    >>> import quorank as qr
    >>> @dataclass(frozen=True)
    ... class ClickContrast(qr.Learner):
    ...     kind = "click-contrast"
    ...     eta: float = 0.1  # η
    ...
    ...     def learn(self, theta, shown):
    ...         if shown.clicks.any() and not shown.clicks.all():
    ...             chosen, skipped = shown.features[shown.clicks], shown.features[~shown.clicks]
    ...             theta = theta + self.eta * (chosen.mean(0) - skipped.mean(0))
    ...         return theta
    >>> settings = {"learner": ClickContrast(eta=0.2), "data.queries": 60, "federation.rounds": 2}
    >>> qr.run("fpdgd", set=settings, out="runs/contrast").config["learner"]
    {'kind': 'click-contrast', 'eta': 0.2}

    The class attributes declare what a learner needs and provides.
    """

    METHODS: ClassVar[tuple[str, ...]] = ("learn or updates",)  # each learner overrides one of them

    kind: ClassVar[str]
    learns_on_client: ClassVar[bool] = True  # an update is the distance that the client's own parameters moved
    needs_gradient: ClassVar[bool] = False  # follows ∇f, so a ranker must have one at its start
    sends_metric: ClassVar[bool] = False  # sends a measured `metric` and a seed only
    learns_late: ClassVar[bool] = False  # runs on a device, and learns from lists that an older ranker has shown
    estimates_gradient: ClassVar[bool] = False  # updates are gradient estimates, which the server's optimiser scales
    takes_any_list: ClassVar[bool] = False  # corrects clicks by ranks alone, so any order of a list will do
    grows_trees: ClassVar[bool] = False  # sends histograms from which the server grows trees

    def learn(self, theta: Doubles, shown: ClickedList) -> Doubles:
        """Return the parameters after one clicked list.

        Args:
            theta: (d,) the client's own parameters.
            shown: Arrays of the list, one row per shown document: `features` (k, d), `clicks` (k,), `scores` (k,),
                `propensity` (k,) and `ranks` (k,).

        Returns:
            (d,) parameters.
        """
        raise NotImplementedError(f"{self.kind} has no method learn")

    def show(self, scores: Doubles, draws: Doubles) -> npt.ArrayLike:
        """Return the positions of candidates to show, best first, at least as many as are shown.

        Lists are drawn by Plackett-Luce (FPDGD eqs 1 and 2) unless a learner overrides this method.

        Args:
            scores: (n,) f_θ of the candidates.
            draws: (n,) uniform random numbers in [0, 1), the same in every engine.

        Returns:
            (at least k,) different row numbers.
        """
        raise NotImplementedError(f"{self.kind} has no method show")

    @property
    def trees_per_round(self) -> int:
        """Number of trees that a round adds."""
        return 0

    @property
    def metric(self) -> str:
        """Name of the metric that is sent; empty if none is."""
        return ""

    @property
    def pdgd_eta(self) -> float | None:
        """η of PDGD as published; None for every other learner."""
        return None

    @property
    def list_temperature(self) -> float:
        """τ: lists are drawn from the scores divided by it."""
        return 1.0

    def tree_plan(self, leaves: int, k: int) -> TreePlan:
        """Return the plan of trees with `leaves` leaves; logged lists have k documents."""
        raise NotImplementedError(f"{self.kind} grows no trees")

    def loop_plan(self, work: Work) -> LoopPlan | None:
        """Return the loop that makes the updates; None if they need more, or if its arguments depend on the round."""
        return None

    def check(self, interactions: int) -> None:
        """Refuse a number of interactions per client and round that the learner cannot use."""

    def check_logged(self) -> None:
        """Refuse to learn from a log of lists shown by others, unless the learner takes any list."""
        own = f"{self.kind} learns from lists that it has drawn itself, and those of a log were drawn by others"
        sentence = f'{own}; use counterfactual, or users who click again on what was clicked (kind = "cascade")'
        require(self.takes_any_list, "learner.needs-own-lists", sentence)

    def propensities_of(self, k: int) -> Doubles | None:
        """Return the propensities of ranks 1 to k by which clicks are corrected, or of fewer; None without correction."""
        return None

    def check_list(self, k: int) -> None:
        """Refuse lists of k documents if the learner cannot use them."""

    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill rows[i, :d] with the update of work.clients[i], and rows[i, d:] with its STATISTICS."""
        play_own_learner(self, type(self).show is not Learner.show, work, rows)


class CompiledLearner(Learner):
    """Base class of learners with a compiled loop of their own kernels (`client_loop`)."""

    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill rows[i, :d] with the update of work.clients[i], and rows[i, d:] with its STATISTICS."""
        plan = self.loop_plan(work)
        assert plan is not None, "a learner without plan has its own updates"
        plan.loop(work.world, plan.cohort, plan.rule, memory_for(work.world), rows)


NO_NUMBERS = np.zeros(1)
"""Of one type, so that the loop around called methods is compiled once for all learners."""


class OwnRule(NamedTuple):
    """Arrays through which methods and the loop exchange one list, and the callback that connects them."""

    callback: int  # address of a C function without arguments; 0 where methods are compiled
    shows: bool  # the learner has a `show`
    fields: Any  # (1,) record of the learner's numbers, for compiled methods; NO_NUMBERS for others
    state: Integers  # (5,) method to call, interaction, candidates, documents shown, 1 after a failure
    scores: Doubles  # (longest,)
    draws: Doubles  # (longest,)
    order: Integers  # (longest,)
    theta: Doubles
    clicked: ClickedList  # arrays of full length


@Intrinsic
def call_back(address: int) -> None:
    """Call a C function without arguments."""
    ctypes.CFUNCTYPE(None)(address)()


@call_back.instructions("void")
def _emit_call(emit: Any) -> Any:
    kind = emit.ir.FunctionType(emit.ir.VoidType(), []).as_pointer()
    emit.builder.call(emit.builder.inttoptr(emit.args[0], kind), [])
    return emit.nothing()


def play_own_learner(learner: Learner, shows: bool, work: Work, rows: Doubles) -> None:
    """Play a cohort whose clients learn by `learner.learn`; `shows` if lists are drawn by `learner.show`.

    Raises:
        BadInput: `learner.failed` when a method raises, `learner.wrong-result` when its result cannot be used.
    """
    world, size, longest = work.world, len(work.theta), work.world.longest
    learn, show = getattr(type(learner), "learn", None), getattr(type(learner), "show", None)
    compiled = isinstance(learn, Kernel)
    sentence = "show and learn must both be kernels, or neither"
    require(not shows or isinstance(show, Kernel) == compiled, "learner.half-compiled", sentence, learner.kind)
    k = min(world.k, longest)
    clicked = ClickedList(
        np.zeros((k, world.n_features)), np.zeros(k, np.bool_), np.zeros(k), np.full(k, np.nan), np.arange(1, k + 1)
    )
    rule = OwnRule(
        0, shows, _numbers(learner) if compiled else NO_NUMBERS, np.zeros(5, np.int64), np.zeros(longest),
        np.zeros(longest), np.arange(longest), np.zeros(size), clicked,
    )  # fmt: skip
    if compiled:
        play(_compiled_loop(show if shows else None, learn), work, rule, rows)
        require(not rule.state[4], "learner.wrong-result", _WRONG_LIST, f"{learner.kind}.show")
        return
    errors: list[BaseException] = []
    callback = ctypes.CFUNCTYPE(None)(lambda: _answer(learner, rule, errors))
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    play(_called_loop, work, rule._replace(callback=address), rows)
    for error in errors:
        if not isinstance(error, Exception) or isinstance(error, BadInput):
            raise error
        sentence = f"raised {type(error).__name__}: {error}"
        raise BadInput("learner.failed", sentence, f"{learner.kind}.{('show', 'learn')[rule.state[0]]}") from error


_WRONG_LIST = "must return the positions of candidates, best first, each once and at least as many as are shown"


def _answer(learner: Learner, rule: OwnRule, errors: list[BaseException]) -> None:
    """Call the method that the loop asks for; after an error nothing is called any more."""
    method, _, n, k, _ = rule.state.tolist()
    try:
        if method == SHOW:
            order = np.asarray(learner.show(rule.scores[:n].copy(), rule.draws[:n].copy()))[:k]
            fits = order.shape == (k,) and np.issubdtype(order.dtype, np.integer) and len(np.unique(order)) == k
            fits = fits and order.min() >= 0 and order.max() < n
            require(fits, "learner.wrong-result", _WRONG_LIST, f"{learner.kind}.show")
            rule.order[:k] = order
            return
        every = rule.clicked
        shown = ClickedList(
            every.features[:k].copy(), every.clicks[:k].copy(), every.scores[:k].copy(), every.propensity[:k].copy(),
            every.ranks[:k].copy(),
        )  # fmt: skip
        theta = np.asarray(learner.learn(rule.theta.copy(), shown), dtype=np.float64)
        sentence = f"must return {rule.theta.size} finite parameters"
        fits = theta.shape == rule.theta.shape and np.isfinite(theta).all()
        require(fits, "learner.wrong-result", sentence, f"{learner.kind}.learn")
        rule.theta[:] = theta
    except BaseException as error:
        errors.append(error)
        rule.state[4] = 1


def _numbers(learner: Learner) -> Any:
    """(1,) record of the fields that are numbers."""
    values = {f.name: getattr(learner, f.name) for f in fields(learner)}
    numbers = {name: value for name, value in values.items() if isinstance(value, (bool, int, float))} or {"_": 0}
    return np.array([tuple(numbers.values())], dtype=[(name, type(value)) for name, value in numbers.items()])


@fixed_memory_kernel
def fill_propensity(scores: Floats, n: int, k: int, rest: float, buffers: Buffers, out: Doubles) -> None:
    """out[p] = P(document at rank p | documents above) of a list that `sample_list` drew from `scores`."""
    if rest < 0.0:
        scaled_denominators(scores, n, k, buffers)
        for p in range(k):
            score = np.float64(scores[buffers.shown[p]])
            out[p] = fast_exp(score - buffers.logarithms[p]) * buffers.inverses[p]
        return
    denominator = rest
    for p in range(k - 1, -1, -1):
        denominator += buffers.shown_weights[p]
        out[p] = buffers.shown_weights[p] / denominator


@fixed_memory_kernel
def _prepare_show(rule: OwnRule, world: World, shown: Impression) -> None:
    """Fill the scores and draws of all candidates."""
    at = shown.address
    fill_uniform(world.ranking_key, at.interaction, at.client, at.round, rule.draws[: shown.n])
    for i in range(shown.n):
        rule.scores[i] = shown.scores[i]
    rule.state[0], rule.state[1], rule.state[2], rule.state[3] = SHOW, at.interaction, shown.n, shown.k


@fixed_memory_kernel
def _prepare_learn(
    rule: OwnRule, world: World, shown: Impression, rest: float, theta: Doubles, buffers: Buffers
) -> None:
    """Fill the arrays of the clicked list."""
    clicked = rule.clicked
    for p in range(shown.k):
        row = shown.start + buffers.shown[p]
        for j in range(world.n_features):
            clicked.features[p, j] = world.padded[row, j]
        clicked.clicks[p], clicked.scores[p] = buffers.clicked[p], shown.scores[buffers.shown[p]]
    if not rule.shows:
        fill_propensity(shown.scores, shown.n, shown.k, rest, buffers, clicked.propensity)
    for j in range(len(theta)):
        rule.theta[j] = theta[j]
    rule.state[0], rule.state[1], rule.state[2], rule.state[3] = LEARN, shown.address.interaction, shown.n, shown.k


@fixed_memory_kernel
def _show_drawn(rule: OwnRule, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
    """Draw a Plackett-Luce list."""
    return sample_list(shown.scores, shown.n, shown.k, world.ranking_key, shown.address, buffers)


@fixed_memory_kernel
def _show_called(rule: OwnRule, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
    if not rule.shows:
        return _show_drawn(rule, world, shown, theta, buffers)
    _prepare_show(rule, world, shown)
    if not rule.state[4]:
        call_back(rule.callback)
    for p in range(shown.k):
        buffers.shown[p] = p if rule.state[4] else rule.order[p]
    return 0.0


@fixed_memory_kernel
def _learn_called(
    rule: OwnRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    if rule.state[4]:
        return False
    _prepare_learn(rule, world, shown, rest, theta, buffers)
    call_back(rule.callback)
    if rule.state[4]:
        return False
    for j in range(len(theta)):
        theta[j] = rule.theta[j]
    return True


_called_loop = client_loop(_show_called, _learn_called)


@cache
def _compiled_loop(show: Callable[..., Any] | None, learn: Callable[..., Any]) -> Callable[..., None]:
    """Compile the loop around methods that are kernels, once per process."""

    @kernel
    def show_by_kernel(rule: OwnRule, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
        _prepare_show(rule, world, shown)
        order = show(rule.fields[0], rule.scores[: shown.n], rule.draws[: shown.n])  # type: ignore[misc]
        if len(order) < shown.k:
            rule.state[4] = 1
        for p in range(shown.k):
            document = order[p] if p < len(order) else p
            for q in range(p):
                if buffers.shown[q] == document:
                    rule.state[4] = 1
            if document < 0 or document >= shown.n:
                document, rule.state[4] = p, 1
            buffers.shown[p] = document
        return 0.0

    @kernel
    def learn_by_kernel(
        rule: OwnRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
    ) -> bool:
        _prepare_learn(rule, world, shown, rest, theta, buffers)
        k, clicked = shown.k, rule.clicked
        arrays = ClickedList(
            clicked.features[:k], clicked.clicks[:k], clicked.scores[:k], clicked.propensity[:k], clicked.ranks[:k]
        )
        learned = learn(rule.fields[0], rule.theta, arrays)
        for j in range(len(theta)):
            theta[j] = learned[j]
        return True

    return client_loop(_show_drawn if show is None else show_by_kernel, learn_by_kernel, cached=False)
