"""Verdicts of Avro's Java library on pairs of schemas: python compat/registry/avro/renew.py [--pairs N] [--write].

The pairs are those that `tests/support/random_schemas.py` makes of seeds. Prints how many verdicts of ours differ, which is
an error; with `--write`, `tests/golden/registry/avro.jsonl` has the first of them, those that both sides understand.

Java's library throws where an alias and a name, or two aliases, are those of two fields of the writer, also of another
record of a union, so that some schemas do not even follow themselves: of these pairs there is no verdict.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "server")]

from barnabas.registry.errors import SchemaError  # noqa: E402
from barnabas.registry.formats import parse  # noqa: E402
from barnabas.registry.schemas import AVRO, Schema  # noqa: E402
from compat.kit.java import built  # noqa: E402
from tests.support.random_schemas import AvroPairs  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "registry" / "avro.jsonl"
WRITTEN = 1_000
SHOWN = 5


def verdicts(pairs: list[tuple[str, str]]) -> list[str]:
    """Return what Java says of readers' and writers' schemas."""
    class_path = built(Path(__file__).resolve().parent, "avro-verdicts")
    done = subprocess.run(
        ["java", "-XX:+UseSerialGC", "-cp", class_path, "Verdicts"],
        input="".join(f"{reader}\t{writer}\n" for reader, writer in pairs),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def ours(reader: str, writer: str) -> bool | None:
    """Return whether a reader's schema takes what a writer's writes; None if one of them is none."""
    try:
        schemas = [parse(Schema(AVRO, text), is_new=True) for text in (reader, writer)]
    except SchemaError:
        return None
    return not schemas[0].breaks(schemas[1])


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    pairs = [AvroPairs(Random(seed)).pair() for seed in range(options.pairs)]
    rows, differing, invalid, thrown = [], [], 0, 0
    for (reader, writer), verdict in zip(pairs, verdicts(pairs), strict=True):
        is_taken = ours(reader, writer)
        if verdict == "INVALID" or is_taken is None:
            invalid += 1
            continue
        if verdict == "EXCEPTION":
            thrown += 1
            continue
        word, _, kinds = verdict.partition(" ")
        if is_taken != (word == "COMPATIBLE"):
            differing.append((reader, writer, verdict))
        row = {"reader": json.loads(reader), "writer": json.loads(writer), "fits": word == "COMPATIBLE"}
        rows.append({**row, "kinds": kinds.split(",") if kinds else []})
    print(
        f"{len(rows)} pairs compared, {invalid} not understood by one side, {len(differing)} verdicts differ"
    )
    for reader, writer, verdict in differing[:SHOWN]:
        print(f"  Java: {verdict}\n  reader {reader}\n  writer {writer}")
    if options.write:
        lines = (json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows[:WRITTEN])
        GOLDEN.write_text("".join(f"{line}\n" for line in lines))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
