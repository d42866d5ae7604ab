"""python -m compat.cluster: see the README beside this file."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from compat.cluster import checks, quorum
from compat.cluster.nodes import KAFKA, KINDS, OLD, OURS, Cluster, ClusterError, KafkaError

MIXES = {
    "kafka": (KAFKA, KAFKA, KAFKA),
    "one-of-ours": (KAFKA, KAFKA, OURS),
    "two-of-ours": (KAFKA, OURS, OURS),
    "ours": (OURS, OURS, OURS),
    "old": (OLD, OURS, OURS),
    "raised": (KAFKA, OURS, OURS),
    "rolled": (KAFKA, KAFKA, KAFKA),
}


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every check holds in every mix."""
    if argv[:1] == ["quorum"]:
        return quorum.main(argv[1:])
    parser = argparse.ArgumentParser(prog="python -m compat.cluster", description=__doc__)
    parser.add_argument(
        "--mixes", default="one-of-ours,two-of-ours,ours,old,raised,rolled", help=f"of {', '.join(MIXES)}"
    )
    parser.add_argument("--checks", default="", help="only these, after creation")
    parser.add_argument("--controller", choices=KINDS, help="which kind of broker is made the controller")
    parser.add_argument("--keep", action="store_true", help="go on after a check that fails")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    names = [name for name in options.checks.split(",") if name]
    chosen = [
        check for check in checks.CHECKS if not names or check.__name__ in ("membership", "creation", *names)
    ]
    failures = 0
    for mix in options.mixes.split(","):
        kinds = MIXES[mix]
        # A mixed cluster is checked under a controller of each kind.
        chosen = [
            check
            for check in {"rolled": checks.ROLLED, "raised": checks.RAISED}.get(mix, checks.CHECKS)
            if not names or check.__name__ in ("membership", "creation", *names)
        ]
        controllers = [options.controller] if options.controller else sorted(set(kinds))
        for controller in controllers:
            directory = Path(tempfile.mkdtemp(prefix="cluster-", dir=options.dir))
            failed = run_mix(mix, kinds, controller, directory, chosen, keep=options.keep)
            failures += failed
            if not failed and not options.dir:
                shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{'FAIL' if failures else 'PASS'}: {failures} checks failed")
    return 1 if failures else 0


def run_mix(
    mix: str,
    kinds: tuple[str, ...],
    controller: str,
    directory: Path,
    chosen: list[checks.Check],
    *,
    keep: bool,
) -> int:
    """Run checks in one cluster; returns the number of failures."""
    print(f"\n{mix} ({', '.join(kinds)}), controller {controller}, in {directory}", flush=True)
    failures = 0
    try:
        settings = {"inter.broker.protocol.version": "2.6"} if mix == "raised" else {}
        with Cluster(directory, kinds, settings) as cluster:
            for check in chosen:
                begun = time.monotonic()
                try:
                    if cluster.of_kind(controller):
                        cluster.make_controller(cluster.of_kind(controller)[0])
                    note = check(cluster)
                    verdict = "PASS"
                except (ClusterError, KafkaError) as error:
                    note, verdict = str(error), "FAIL"
                except Exception:
                    note, verdict = traceback.format_exc(), "FAIL"
                print(f"  {verdict} {check.__name__} ({time.monotonic() - begun:.0f} s): {note}", flush=True)
                failures += verdict == "FAIL"
                if verdict == "FAIL" and not keep:
                    break
            for broker_id, lines in cluster.complaints().items():
                print(
                    f"  FAIL broker {broker_id} has logged {len(lines)} errors, the first: {lines[0]}",
                    flush=True,
                )
                failures += 1
    except (ClusterError, KafkaError) as error:
        print(f"  FAIL {error}", flush=True)
        failures += 1
    return failures


if __name__ == "__main__":
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "No chroot path exists")  # the first broker makes it
    sys.exit(main(sys.argv[1:]))
