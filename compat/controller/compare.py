"""Every API of a controller, on Apache Kafka's and on ours: python -m compat.controller.compare.

The exit code is 1 if a response, or a record written for a request, has an unknown difference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from compat.controller.known_differences import KNOWN
from compat.controller.records import records_by_label
from compat.controller.sides import ControllerSide, both
from compat.controller.steps import numbered, static_steps, steps
from compat.kafka import KafkaError
from compat.kit import examples
from compat.kit.compare import Step, run
from compat.kit.known import Difference, differences_of, judge
from compat.kit.sides import StartError
from compat.kit.wire import WireError

VERSION = "4.4.0"
SETTLE_S = 2.0
Sides = tuple[ControllerSide, ControllerSide]


class Marks:
    """The ends of both logs after each step."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._epochs = [-1, -1]
        self.of: tuple[list[tuple[str, int]], list[tuple[str, int]]] = [], []

    def noted(self, asked: Iterable[Step]) -> Iterator[Step]:
        """Yield the steps, and record the log ends after each."""
        self._note("at first")
        for step in asked:
            yield step
            self._note(step.label)

    def _note(self, label: str) -> None:
        for number, (side, marks) in enumerate(zip(self._sides, self.of, strict=True)):
            try:
                self._epochs[number], end = side.end(self._epochs[number])
                marks.append((label, end))
            except (OSError, WireError) as error:
                raise StartError(f"{side.name} does not answer after {label!r}: {error}") from error


def compared(asked: list[Step], version: str, *, is_static: bool = False) -> list[Difference]:
    """Return the differences between responses and between records. Raises KafkaError, RuntimeError, StartError."""
    with both(version, is_static=is_static) as sides:
        marks = Marks(sides)
        differences = run(marks.noted(asked), *sides, KNOWN, SETTLE_S)
        theirs, ours = (records_by_label(version, side, of) for side, of in zip(sides, marks.of, strict=True))
    for label in dict.fromkeys((*theirs, *ours)):
        differences += differences_of(label, theirs.get(label, []), ours.get(label, []))
    return differences


def main() -> None:
    """Compare, and end the process."""
    parser = argparse.ArgumentParser(prog="python -m compat.controller.compare", description=__doc__)
    parser.add_argument("--version", default=VERSION, help=f"which Kafka (default: {VERSION})")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="show differences of steps with this in their label"
    )
    examples.add_option(parser)
    options = parser.parse_args()
    asked, of_static = numbered(steps()), numbered(static_steps())
    try:
        differences = compared(asked, options.version)
        differences += compared(of_static, options.version, is_static=True)
    except (KafkaError, StartError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    if options.keep_examples:
        examples.keep("controller", differences, KNOWN)
    shown = [difference for difference in differences if options.only in difference.label]
    bad = judge(shown, [] if options.only else KNOWN)
    print(
        f"{len(asked) + len(of_static)} requests, {len(differences)} differences, {bad} of them not as known"
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
