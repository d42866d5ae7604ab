"""Golden files of settings, written from the output of a small Java program with Kafka's own classes.

The rule: a module of this package that writes such files runs its program with `ask` and has `write` as its command.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path

from compat.kafka import KafkaError, release
from compat.kafka.process import java_command

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "settings"


def ask(program: str, version: str, asked: str = "") -> str:
    """Return the output of a program of this directory with a release's classes. Raises KafkaError."""
    command = java_command(release(version), str(Path(__file__).with_name(program)))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KafkaError(f"{program} with Kafka {version}: {done.stderr[-2000:]}")
    return done.stdout


def write(
    module: str, summary: str | None, prefix: str, lines: tuple[str, ...], text_of: Callable[[str], str]
) -> None:
    """Write `PREFIX-VERSION.tsv` of the releases that the command line names, of all `lines` if none.

    `text_of` returns the text for a release. Exits with 1 and a message on a KafkaError.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=summary)
    parser.add_argument(
        "version", nargs="*", default=list(lines), help="a line such as 4.x or 3.9, or an exact version"
    )
    asked = parser.parse_args().version
    GOLDEN.mkdir(exist_ok=True)
    try:
        for version in asked:
            text = text_of(version)
            path = GOLDEN / f"{prefix}-{release(version).version.rpartition('.')[0]}.tsv"
            path.write_text(text)
            print(f"{path.name}: {len(text.splitlines())} settings")
    except KafkaError as error:
        parser.exit(1, f"error: {error}\n")
