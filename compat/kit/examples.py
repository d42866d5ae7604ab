"""Examples of known differences from runs, stored for tests: each predicate must accept its own.

The rule: one example for each known difference, with the smallest responses; a file has one Python literal per line.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from pathlib import Path

from compat.kit.known import Difference, KnownDifference

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "known_differences"


def add_option(parser: argparse.ArgumentParser) -> None:
    """Let a comparison keep examples."""
    parser.add_argument(
        "--keep-examples", action="store_true", help=f"write examples of what is known to {GOLDEN.name}"
    )


def keep(name: str, differences: Sequence[Difference], known_differences: Sequence[KnownDifference]) -> None:
    """Write an example of each of these that was seen."""
    lines = []
    for row in known_differences:
        covered = [difference for difference in differences if row.covers(difference)]
        if covered:
            example = min((_literal(row, difference) for difference in covered), key=len)
            lines.append(example)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    (GOLDEN / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def kept(name: str) -> list[tuple[str, Difference]]:
    """Return the examples of a list, each with its reason."""
    rows = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [(reason, Difference(*values)) for reason, *values in map(ast.literal_eval, rows)]


def _literal(row: KnownDifference, difference: Difference) -> str:
    """Return as much as the predicate needs: the values, the whole responses, or those of the whole scenario."""
    alone = (difference.label, difference.path, difference.theirs, difference.ours)
    forms = (
        alone,
        (*alone, difference.whole),
        (*alone, difference.whole, tuple(map(dict, difference.answers)), difference.step),
    )
    enough = next((values for values in forms if row.covers(Difference(*values))), forms[-1])
    return repr((row.reason, *enough))
