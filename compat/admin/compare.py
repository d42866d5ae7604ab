"""Topics as admin clients see and change them, on Apache Kafka and on Barnabas: python -m compat.admin.compare.

The exit code is 1 when an answer differs in a way that is not meant.
"""

from __future__ import annotations

import argparse
import sys

from compat.admin import changing, reading
from compat.admin.meant import MEANT
from compat.kafka import KafkaError
from compat.kit.compare import judge, run
from compat.kit.sides import StartError, both


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.admin.compare", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="show differences of steps with this in their label"
    )
    options = parser.parse_args()
    steps = [*changing.steps(), *reading.steps()]
    with both({"num.partitions": "3"}, options.version) as (kafka, barnabas):
        differences = run(steps, kafka, barnabas, MEANT)
    shown = [difference for difference in differences if options.only in difference.label]
    bad = judge(shown, [] if options.only else MEANT)
    print(f"{len(steps)} requests, {len(differences)} differences, {bad} of them not as meant")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
