"""Every setting of Apache Kafka's brokers, as its own classes define them: python -m compat.configs.settings.

Writes `tests/golden/settings/kafka-VERSION.tsv` for each release named; a test of `make test` walks over them. Needs a
JDK.
"""

from __future__ import annotations

from compat.configs.golden import ask, write

LINES = ("4.4", "3.9")


def settings_of(version: str) -> str:
    """Return the settings of a release, one a line. Raises KafkaError."""
    return ask("Settings.java", version)


if __name__ == "__main__":
    write("compat.configs.settings", __doc__, "kafka", LINES, settings_of)
