"""`python -m compat.crash`: see the README beside this file."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from compat.crash.rounds import judge, run


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m compat.crash", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200, help="how often the broker is ended")
    options = parser.parse_args(argv)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # an unavailable broker is expected
    directory = Path(tempfile.mkdtemp(prefix="barnabas-crash-"))
    print(f"seed {options.seed}, {options.rounds} rounds, logs in {directory}", flush=True)
    return judge(directory, options.seed, lambda: run(directory, seed=options.seed, rounds=options.rounds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
