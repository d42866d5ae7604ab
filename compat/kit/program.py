"""The command line of a comparison: start both brokers, send requests to both, print the differences.

The rule: the exit code is 1 if there is an unknown difference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from compat.kafka import KafkaError
from compat.kit import examples
from compat.kit.compare import Step, run
from compat.kit.known import KnownDifference, judge
from compat.kit.sides import StartError, both


def main(
    prog: str,
    doc: str | None,
    settings: Mapping[str, str],
    steps: Callable[[], Sequence[Step]],
    known_differences: Sequence[KnownDifference],
) -> NoReturn:
    """Compare, and end the process."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=doc)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="show differences of steps with this in their label"
    )
    examples.add_option(parser)
    options = parser.parse_args()
    asked = steps()
    try:
        with both(settings, options.version) as (kafka, barnabas):
            differences = run(asked, kafka, barnabas, known_differences)
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
    if options.keep_examples:
        examples.keep(prog.split(".")[1], differences, known_differences)
    shown = [difference for difference in differences if options.only in difference.label]
    bad = judge(shown, [] if options.only else known_differences)
    print(f"{len(asked)} requests, {len(differences)} differences, {bad} of them not as known")
    sys.exit(1 if bad else 0)
