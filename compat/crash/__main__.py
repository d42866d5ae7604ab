"""`python -m compat.crash`: see the README beside this file."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from compat.crash.rounds import LostError, run


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m compat.crash", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200, help="how often the broker is ended")
    options = parser.parse_args(argv)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # that a broker is gone is what this is about
    directory = Path(tempfile.mkdtemp(prefix="barnabas-crash-"))
    print(f"seed {options.seed}, {options.rounds} rounds, logs in {directory}", flush=True)
    try:
        figures = run(directory, seed=options.seed, rounds=options.rounds)
    except LostError as error:
        print(f"FAIL seed {options.seed}: {error}; see {directory}")
        return 1
    shutil.rmtree(directory)
    print("PASS", ", ".join(f"{name} {value}" for name, value in asdict(figures).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
