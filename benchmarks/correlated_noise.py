"""Noise correlated over rounds against independent noise: the error of the prefix sums at the same privacy.

    python benchmarks/correlated_noise.py [--rounds 10 100 300 1000] [--epsilon 2] [--delta 1e-5]

Prints Markdown tables: with every client in every round; with clients that take part seldom, at fixed distances; and
what sampling clients in secret gives instead. Nothing is drawn: errors are exact standard deviations of a coordinate.
"""

from __future__ import annotations

import argparse

import numpy as np

from quorank.kernels.arrays import Doubles
from quorank.privacy.mechanisms.correlated import KINDS, Factor, sensitivity


def matrix(kind: str, rounds: int) -> Doubles:
    """The factor C as a whole matrix."""
    c = np.zeros((rounds, rounds))
    for t in range(rounds):
        c[t, : t + 1] = Factor(kind, rounds).row(t)
    return c


def full_tree(rounds: int) -> Doubles:
    """All blocks of the binary tree over the rounds, also those that no prefix needs, as rows of zeros and ones."""
    rows, width = [], 1
    while width < 2 * rounds:
        for start in range(0, rounds, width):
            row = np.zeros(rounds)
            row[start : start + width] = 1.0
            if width == 1 or row.sum() > width // 2:
                rows.append(row)
        width *= 2
    return np.array(rows)


def best_decoder_errors(c: Doubles) -> Doubles:
    """Prefix errors with the least-squares B = A C⁺, which may look ahead: no estimator from these blocks does better."""
    b = np.cumsum(np.linalg.pinv(c), axis=0)
    return np.asarray((b * b).sum(axis=1) * sensitivity(c) ** 2, dtype=np.float64)


def errors_of_all(rounds: int) -> dict[str, Doubles]:
    """The variance of each prefix's error for σ · clip = 1 with everyone in every round."""
    errors = {kind: Factor(kind, rounds).prefix_errors() for kind in KINDS}
    errors["tree, best decoder"] = best_decoder_errors(full_tree(rounds))
    return errors


def seldom_sensitivity(c: Doubles, participations: int) -> float:
    """The sensitivity to a client that takes part so many times, T / participations rounds apart, for C ≥ 0."""
    rounds = c.shape[1]
    apart = rounds // participations
    gram = c.T @ c
    phases = (np.arange(start, rounds, apart)[:participations] for start in range(apart))
    return float(np.sqrt(max(gram[np.ix_(phase, phase)].sum() for phase in phases)))


def full_table(all_rounds: list[int], sigma: float) -> list[str]:
    """Everyone in every round: root mean squared error over the prefixes, and the error of the last prefix."""
    kinds = list(errors_of_all(2))
    lines = [f"| T | error | {' | '.join(kinds)} |", "|---|---|" + "---|" * len(kinds)]
    for rounds in all_rounds:
        errors = errors_of_all(rounds)
        for name, read in (("mean", np.mean), ("last", lambda e: e[-1])):
            values = {kind: sigma * float(np.sqrt(read(errors[kind]))) for kind in kinds}
            base = values["independent"]
            cells = [f"{values[k]:,.1f} ({100 * (values[k] / base - 1):+.1f} %)" for k in kinds]
            cells[0] = f"{base:,.1f}"
            lines.append(f"| {rounds} | {name} | {' | '.join(cells)} |")
    return lines


def seldom_table(rounds: int, all_participations: list[int]) -> list[str]:
    """Few participations: the error of correlated noise as a multiple of that of independent noise."""
    kinds = [kind for kind in KINDS if kind not in ("independent", "optimal")]
    lines = [
        f"| participations of T = {rounds} | " + " | ".join(f"{k}: mean | {k}: last" for k in kinds) + " |",
        "|---|" + "---|---|" * len(kinds),
    ]
    plain = Factor("independent", rounds).prefix_errors() / rounds
    for participations in all_participations:
        cells = []
        for kind in kinds:
            scale = seldom_sensitivity(matrix(kind, rounds), participations) ** 2 / participations
            errors = Factor(kind, rounds).prefix_errors() / Factor(kind, rounds).sensitivity ** 2 * scale
            cells += [f"{np.sqrt(errors.mean() / plain.mean()):.3f}", f"{np.sqrt(errors[-1] / plain[-1]):.3f}"]
        lines.append(f"| {participations} | {' | '.join(cells)} |")
    return lines


def sampled_multiplier(rounds: int, participations: int, epsilon: float, delta: float) -> float:
    """Independent noise when each client is drawn for each round with probability participations / T, in secret."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def event(multiplier: float) -> dp_accounting.DpEvent:
        noise = dp_accounting.GaussianDpEvent(multiplier)
        each = dp_accounting.PoissonSampledDpEvent(participations / rounds, noise)
        return dp_accounting.SelfComposedDpEvent(each, rounds)

    bracket = dp_accounting.LowerEndpointAndGuess(0.3, 2.0)
    found = dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, epsilon, delta, bracket, tol=1e-3)
    return float(found)


def sampled_table(rounds: int, all_participations: list[int], epsilon: float, delta: float, sigma: float) -> list[str]:
    """What secret sampling gives independent noise instead, as a multiple of its error without that secret."""
    lines = ["| expected participations | probability of a round | independent, sampled |", "|---|---|---|"]
    for k in all_participations:
        ratio = sampled_multiplier(rounds, k, epsilon, delta) / (sigma * np.sqrt(k))
        lines.append(f"| {k} | {k / rounds:.3f} | {ratio:.3f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, nargs="+", default=[10, 100, 300, 1000])
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    args = parser.parse_args()
    from dp_accounting import get_sigma_gaussian

    sigma = float(get_sigma_gaussian(args.epsilon, args.delta))
    promise = f"whole-run, client-level ε = {args.epsilon:g}, δ = {args.delta:g} (σ = {sigma:.4f})"
    print(f"Every client in every round; {promise}; standard deviation in units of the clip\n")
    print("\n".join(full_table(args.rounds, sigma)))
    print("\nClients at fixed distances; error as a multiple of independent noise's at the same ε and δ\n")
    for rounds in args.rounds:
        counts = [k for k in (1, 3, 10, 30, 60, 75, 100, 150, 200, 250, 300, 500, 1000) if rounds % k == 0]
        print("\n".join(seldom_table(rounds, counts)) + "\n")
    print("Clients sampled for each round in secret; error as a multiple of that at fixed distances, T = 300\n")
    counts = [1, 3, 10, 30, 60, 75, 100, 150, 300]
    print("\n".join(sampled_table(300, counts, args.epsilon, args.delta, sigma)))


if __name__ == "__main__":
    main()
