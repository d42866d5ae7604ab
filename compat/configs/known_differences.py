"""Differences between the settings of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

import re

from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import all_of, both, is_path, pair, pairs, stumbles, words_of_an_error

INVALID_REQUEST = 42
SMALL_SEGMENTS = "small segments are allowed, as in Kafka 3: decision 30"
IN_MS = "once log.retention.ms is set, Kafka shows the other two as if they were not set"
SEGMENT_BYTES = {"Name": "log.segment.bytes", "Value": "1073741824", "Source": 5}
LISTENERS = re.compile(r"\w+://[\w.]*:\d+(,\w+://[\w.]*:\d+)*")


def other_ports(difference: Difference) -> bool:
    """Return whether two lists of listeners differ only in their ports."""
    texts = (difference.theirs, difference.ours)
    if not all(isinstance(text, str) and LISTENERS.fullmatch(text) for text in texts):
        return False
    return re.sub(r":\d+", ":port", difference.theirs) == re.sub(r":\d+", ":port", difference.ours)


def names_a_release(difference: Difference) -> bool:
    """Return whether the setting names the release to follow, which Kafka lacks."""
    ours = difference.ours
    return difference.theirs == "nothing" and isinstance(ours, dict) and ours.get("Name") == "kafka.version"


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        ".*",
        (r".*/(advertised\.)?listeners/Value", r".*/(advertised\.)?listeners/Synonyms/.*Value"),
        "its own ports",
        accepts=other_ports,
    ),
    KnownDifference(
        ".*",
        r".*/4 0?1/Configs/kafka\.version",
        "shown where it is set, as any setting of its own",
        accepts=names_a_release,
        by_chance="only where another release than the default is followed",
    ),
    KnownDifference(
        ".*",
        (r".*/log\.dirs/Value", r".*/log\.dirs/Synonyms/log\.dirs/Value"),
        "its own directories",
        accepts=both(is_path),
    ),
    KnownDifference(
        ".*",
        r".*/listeners/Synonyms/1/Value",
        "who is told nothing listens at loopback alone: decision 30",
        accepts=pair("PLAINTEXT://:9092", "PLAINTEXT://localhost:9092"),
    ),
    KnownDifference(
        ".*",
        (r".*/listeners/ReadOnly", r".*/listener\.security\.protocol\.map/ReadOnly"),
        "listeners are opened at the start only",
        accepts=pair(False, True),
    ),
    KnownDifference(
        ".*2 'no-such'.*",
        ".*/ErrorMessage",
        "words for people where Kafka has an empty text",
        accepts=all_of(pair("", "words"), words_of_an_error),
    ),
    KnownDifference(".*", r".*/4 1/Configs/log\.retention\.hours/Value", IN_MS, accepts=pair("168", "20")),
    KnownDifference(".*", r".*/4 1/Configs/log\.retention\.minutes/Value", IN_MS, accepts=pair(None, "600")),
    KnownDifference(
        ("validate: change 4 '1': log.segment.bytes set 1000", "change 4 '1': log.segment.bytes set 1000"),
        ".*/ErrorCode",
        SMALL_SEGMENTS,
        accepts=pair(INVALID_REQUEST, 0),
    ),
    KnownDifference(
        ("validate: change 4 '1': log.segment.bytes set 1000", "change 4 '1': log.segment.bytes set 1000"),
        ".*/ErrorMessage",
        f"no error: {SMALL_SEGMENTS}",
        accepts=pair("words", None),
    ),
    KnownDifference(
        "after change 4 '1': log.segment.bytes set 1000",
        (r".*/log\.segment\.bytes/Value", r".*/log\.segment\.bytes/ConfigSource"),
        f"set: {SMALL_SEGMENTS}",
        accepts=pairs(("1073741824", "1000"), (5, 2)),
    ),
    KnownDifference(
        "after change 4 '1': log.segment.bytes set 1000",
        r".*/log\.segment\.bytes/Synonyms",
        f"set before the default: {SMALL_SEGMENTS}",
        accepts=pair(
            {"log.segment.bytes": SEGMENT_BYTES},
            [SEGMENT_BYTES | {"Value": "1000", "Source": 2}, SEGMENT_BYTES],
        ),
    ),
    KnownDifference(
        tuple(
            f"{before}change 2 'plain': retention.ms {operation} 1"
            for before in ("validate: ", "")
            for operation in (9, -1)
        ),
        (".*/ErrorCode", ".*/ErrorMessage"),
        "Kafka stumbles over an operation that does not exist; Barnabas answers INVALID_REQUEST, and says which",
        accepts=stumbles(INVALID_REQUEST),
    ),
)
