"""The cases with kcat: it reads values by a registry, where it is built with libserdes, and writes none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness import Cases, SkipCaseError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from names import CASES, COUNT, bootstrap, users, written_by_others

READS_ALONE = "kcat reads by a registry, and writes no schema"
SECONDS_MAX = 60
cases = Cases(names=CASES, lacks=dict.fromkeys((name for name in CASES if name != "interop"), READS_ALONE))


@cases.case("interop")
def interop() -> str:
    chosen = written_by_others(("avro",))
    for topic, _ in chosen:
        done = subprocess.run(
            [
                "kcat",
                "-b",
                bootstrap(),
                "-C",
                "-t",
                topic,
                "-s",
                "value=avro",
                "-r",
                cases.bootstrap,
                "-e",
                "-q",
            ],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        if "without" in done.stderr or "lacks" in done.stderr or "not built" in done.stderr:
            reason = done.stderr.strip().splitlines()[0].removeprefix("% ERROR: ")
            raise SkipCaseError(f"Debian's kcat says: {reason}")
        assert done.returncode == 0, done.stderr[-500:]
        values = sorted(
            (json.loads(line) for line in done.stdout.splitlines()), key=lambda value: value["age"]
        )
        assert values == users(), values[:3]
    return f"{len(chosen)} topics of others, {COUNT} records each"


cases.main()
