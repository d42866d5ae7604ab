"""Every setting of Apache Kafka's brokers, as its own classes define them: python -m compat.configs.settings.

Writes `tests/golden/settings/kafka-VERSION.tsv` for each release named; a test of `make test` walks over them. Needs a
JDK.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from compat.kafka import KafkaError, release
from compat.kafka.process import java_command

PROGRAM = Path(__file__).parent / "Settings.java"
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "settings"
LINES = ("4.x", "3.9")


def settings_of(version: str) -> str:
    """The settings of a release, one a line. Raises KafkaError."""
    done = subprocess.run(
        java_command(release(version), str(PROGRAM)), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise KafkaError(f"{PROGRAM.name} with Kafka {version}: {done.stderr[-2000:]}")
    return done.stdout


def main() -> int:
    """Write the files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.configs.settings", description=__doc__)
    parser.add_argument("version", nargs="*", default=list(LINES), help="4.x, 3.9 or an exact version")
    GOLDEN.mkdir(exist_ok=True)
    for version in parser.parse_args().version:
        found = release(version).version.rpartition(".")[0]
        path = GOLDEN / f"kafka-{found}.tsv"
        path.write_text(settings_of(version))
        print(f"{path.name}: {len(path.read_text().splitlines())} settings")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaError as error:
        sys.exit(f"error: {error}")
