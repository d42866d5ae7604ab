"""The same Streams applications on Apache Kafka and on Barnabas, scenario by scenario: python -m compat.streams.compare.

The exit code is 1 if the observations on the two brokers differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compat.kafka import KafkaError, release
from compat.kit.java import built
from compat.kit.sides import Side, StartError, both
from compat.soak.wordcounts import SETTINGS
from compat.streams.fixture import ApplicationFixture
from compat.streams.instances import InstanceError
from compat.streams.scenarios import SCENARIOS


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.streams.compare", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="scenarios with this in their name")
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="barnabas-streams-"))
    version = release(options.version).version
    program = Path(__file__).resolve().parent / "program"
    class_path = built(program, f"streams-{version}", f"-Dkafka.version={version}")
    bad = seen = 0
    try:
        with both(SETTINGS, options.version) as sides:
            for name in SCENARIOS:
                if options.only in name:
                    count, differences = _compare(name, sides, class_path, directory)
                    seen, bad = seen + count, bad + differences
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
    print(f"{seen} observations, {bad} differences; logs of the instances in {directory}")
    return 1 if bad or not seen else 0


def _compare(name: str, sides: tuple[Side, Side], class_path: str, directory: Path) -> tuple[int, int]:
    """Run a scenario on both at once; returns the numbers of observations and of differences."""
    with ThreadPoolExecutor(2) as pool:
        fixtures = [ApplicationFixture(side, name, class_path, directory / side.name) for side in sides]
        list(pool.map(_run, fixtures))
    theirs, ours = (fixture.notes for fixture in fixtures)
    bad = 0
    for number in range(max(len(theirs), len(ours))):
        pair = [notes[number] if number < len(notes) else ("nothing more", None) for notes in (theirs, ours)]
        if pair[0] != pair[1]:
            print(f"{name}: differs:\n    Kafka    {pair[0]}\n    Barnabas {pair[1]}", flush=True)
            bad += 1
        elif "failed" in pair[0][0]:
            print(f"{name}: {pair[0]}", flush=True)
            bad += 1
        else:
            print(f"{name}: {pair[0][0]}: {pair[0][1]}", flush=True)
    return len(theirs), bad


def _run(fixture: ApplicationFixture) -> None:
    fixture.directory.mkdir(parents=True, exist_ok=True)
    try:
        SCENARIOS[fixture.scenario](fixture)
    except InstanceError as error:
        fixture.note("the scenario failed", str(error))
    finally:
        fixture.end()
        fixture.forget()


if __name__ == "__main__":
    sys.exit(main())
