"""Topics as admin clients see and change them, on Apache Kafka and on Barnabas: python -m compat.admin.compare.

The exit code is 1 when an answer differs in a way that is not known.
"""

from __future__ import annotations

from compat.admin import changing, edges, mutated, reading
from compat.admin.known_differences import KNOWN
from compat.kit.program import main

SETTINGS = {"num.partitions": "3"}

if __name__ == "__main__":
    main(
        "compat.admin.compare",
        __doc__,
        SETTINGS,
        lambda: [*changing.steps(), *reading.steps(), *edges.steps(), *mutated.steps()],
        KNOWN,
    )
