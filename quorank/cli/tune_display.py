"""What `quorank tune` shows to people: how a simulated tuning went, and weights beside the shipped ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.tuning.simulation import Course


def show_course(figures: dict[str, Any], course: Course) -> None:
    from quorank.cli.display import compact, print_rows

    share = figures["rank_accuracy"] / max(figures["true_rank_accuracy"], 1e-12)
    rows = [
        (
            "rank accuracy",
            f"{figures['rank_accuracy']:.4f}",
            f"{share:.2%} of what the people's own weights reach",
        ),
        (
            "at the start",
            f"{figures['start_rank_accuracy']:.4f}",
            f"people's own: {figures['true_rank_accuracy']:.4f}",
        ),
        (
            "worst drop",
            f"{figures['worst_drop']:.2%}",
            "of the first version's rank accuracy, at any iteration",
        ),
        ("violations", str(figures["violations"]), "of bounds, orders and steps"),
        (
            "loss",
            f"{figures['loss']:.4g}",
            f"from {figures['start_loss']:.4g}; {figures['loss_kind']}, margin {figures['margin']:g}",
        ),
        (
            "updates",
            f"{figures['updates']:,}",
            f"{figures['bytes_per_update']} bytes each, in {figures['iterations']} iterations, {figures['hours']:.1f} h",
        ),
        *(
            [("dropped", f"{late + twice:,}", f"{late:,} late, {twice:,} duplicate")]
            if (late := figures["late"]) + (twice := figures["duplicates"])
            else []
        ),
        ("speed", f"{compact(figures['gradients_per_second'])}/s", "client gradients"),
    ]
    print_rows(*rows)
    print()
    heuristic = course.world.heuristic
    show_weights(figures["weights"], heuristic.named(heuristic.shipped), figures["true_weights"])


def show_weights(
    weights: dict[str, float], shipped: dict[str, float] | None, true: dict[str, float] | None = None
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("weight", box=None, pad_edge=False)
    columns = {"tuned": weights, "shipped": shipped, "people's": true}
    present = {name: values for name, values in columns.items() if values is not None}
    for name in present:
        table.add_column(name, justify="right")
    for name in weights:
        table.add_row(name, *(f"{values[name]:.4g}" for values in present.values()))
    Console().print(table)
