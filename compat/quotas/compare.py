"""Client quotas as admin clients see and change them, on Apache Kafka and on Barnabas: python -m compat.quotas.compare.

The exit code is 1 when an answer differs in a way that is not known.
"""

from __future__ import annotations

from compat.kit.program import main
from compat.quotas.known_differences import KNOWN
from compat.quotas.steps import steps

if __name__ == "__main__":
    main("compat.quotas.compare", __doc__, {}, steps, KNOWN)
