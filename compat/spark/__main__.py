"""`python -m compat.spark --minutes 15`: loads on a Spark cluster, under transactional producers, and all are killed.

The rule: at the end each committed record is exactly one row or one dead letter, and no aborted one is there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from barnabas.testing.running import import_path
from compat.kafka.releases import ROOT
from compat.spark import account
from compat.spark.kills import BrokenError, Run


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 if the account is exact."""
    parser = argparse.ArgumentParser(prog="python -m compat.spark", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15, help="for how long processes are killed")
    parser.add_argument("--every", type=float, default=5, help="seconds between two kills, in the mean")
    parser.add_argument("--senders", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-spark-"))
    os.environ["PYTHONPATH"] = os.pathsep.join((import_path(), str(ROOT / "pipeline"), str(ROOT)))
    print(f"seed {options.seed}, in {directory}", flush=True)
    began = time.monotonic()
    run = Run(directory, options.seed, options.senders)
    try:
        run.go(options.minutes * 60, (0.2 * options.every, 1.8 * options.every))
        audit = json.loads(run.settle().splitlines()[-1])
        verdict = account.take(run.broker.bootstrap, run.lake, run.senders.journals)
        verdict.problems = len(audit["problems"])
    except BrokenError as error:
        print(f"FAIL: {error}", flush=True)
        return 1
    finally:
        run.stop()
    print(json.dumps({
        "seconds": round(time.monotonic() - began), "killed": dict(run.killed), "loads ended": run.loads_ended,
        "senders ended": run.senders.ended, "attempts of tasks": dict(run.cluster.task_attempts()),
        "audit": audit, "account": asdict(verdict),
    }))  # fmt: skip
    print("PASS" if verdict.is_exact else "FAIL: the account is not exact", flush=True)
    if not verdict.is_exact:
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
