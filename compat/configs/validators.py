"""Values that Apache Kafka's own validators accept, for every setting: python -m compat.configs.validators.

Writes `tests/golden/settings/values-VERSION.tsv` for each release named: kind, name, and a mark for each value that is
tried, + if it is accepted. A test of `make test` tries the same values. Needs a JDK.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.config import tables, topic
from barnabas.config.setting import Setting
from compat.configs.golden import ask, write

LINES = ("4.4", "4.3.1", "4.2.0", "4.1.0", "4.0.0", "3.9", "2.6")
NUMBERS = (
    *(-(2**63), -(2**31) - 1, -(2**31), -131073, -131072, -1000, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 9, 10, 13, 14, 15, 16),
    *(17, 18, 22, 23, 24, 60, 99, 100, 101, 199, 200, 255, 256, 512, 999, 1000, 1023, 1024, 1025, 2000, 4095, 4096, 4999),
    *(5000, 9999, 10000, 14999, 15000, 32767, 32768, 44999, 45000, 59999, 60000, 1048575, 1048576, 2**31 - 1, 2**31),
    *(2**63 - 1, 2**63),
)  # fmt: skip
FRACTIONS = (-1.5, -1, -0.1, 0, 0.001, 0.2, 0.25, 0.5, 0.8, 0.9, 1, 1.1, 2, 100)
WORDS = ("", " ", "no such value", "true", "false", "TRUE", "a,b", ",", "0", "-1")
_WHOLE = ("int", "short", "long")


def values_of(setting: Setting[object]) -> list[str]:
    """Return the values to try: numbers around all bounds, words, and the allowed values of the setting."""
    if setting.kind.name in _WHOLE:
        return [str(number) for number in NUMBERS]
    if setting.kind.name == "double":
        return [str(number) for number in FRACTIONS]
    allowed = setting.allowed.replace("/", "|") if ".." not in setting.allowed else ""
    choices = [word for word in allowed.split("|") if word and word not in ("+", "replicas", "counts")]
    return [*WORDS, *choices, *[choice.lower() for choice in choices if choice != choice.lower()]]


def tried() -> Iterator[tuple[str, Setting[object], list[str]]]:
    """Yield (kind, setting, values) of all settings."""
    for name in tables.names():
        yield "broker", tables.setting(name), values_of(tables.setting(name))
    for row in topic.SETTINGS.values():
        yield "topic", row, values_of(row)


def marks_of(version: str) -> str:
    """Return the golden file of a release. Raises KafkaError."""
    rows = list(tried())
    asked = "".join(f"{kind}\t{row.name}\t{value}\n" for kind, row, values in rows for value in values)
    answers = iter(ask("Validators.java", version, asked).split())
    lines = []
    for kind, row, values in rows:
        marks = "".join(next(answers) for _ in values)
        if "?" not in marks:
            lines.append(f"{kind}\t{row.name}\t{marks}\n")
    return "".join(lines)


if __name__ == "__main__":
    write("compat.configs.validators", __doc__, "values", LINES, marks_of)
