"""python -m compat.releases: the API versions advertised with `--as-version`, compared with Apache Kafka of that release.

First the whole table is held against the `ApiKeys` in the clients' jar of each release (`--jars`), then brokers of ours
against real ones that are started (`--lines`). Ends with 1 when a key or a version differs that is not in `NOT_SERVED`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping

from barnabas.testing import RunningBroker
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from compat.kafka import KafkaError, RealKafka, release
from compat.releases import messages, published
from tests.support.raw_client import RawClient

NOT_SERVED = {55, 58, 64, 80, 81, 94}
"""APIs that brokers forward to controllers, and the quorum's own (docs/reference/not-implemented.md).

Kafka may advertise them, and we do not; each is left out of at least one release.
"""
SINCE_SOFTWARE_NAMES = "2.4"
Versions = tuple[int, int]
"""The first and the last."""


def advertised(bootstrap: str, name: str) -> dict[int, Versions]:
    """Ask for (first, last) version by key."""
    is_old = tuple(map(int, name.split("."))) < tuple(map(int, SINCE_SOFTWARE_NAMES.split(".")))
    request = ApiVersionsRequest(client_software_name="compat", client_software_version="1")
    with RawClient(bootstrap) as client:
        answer = client.ask(request, 0 if is_old else 3)
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def excused(theirs: Collection[int], ours: Collection[int]) -> set[int]:
    """Return the keys that Kafka advertises, and we do not for a known reason."""
    return {key for key in NOT_SERVED if key in theirs and key not in ours}


def compared(theirs: Mapping[int, Versions], ours: Mapping[int, Versions]) -> list[str]:
    """Return the differences between two brokers' advertised versions, without the excused ones."""
    return [
        f"API {key}: Kafka {theirs.get(key)}, ours {ours.get(key)}"
        for key in sorted((theirs.keys() | ours.keys()) - excused(theirs, ours))
        if theirs.get(key) != ours.get(key)
    ]


def stale(left_out: Collection[int]) -> list[str]:
    """Return what is to be said of keys that every release has served, or none has advertised."""
    return [
        f"API {key}: no longer left out: take it off the list"
        for key in sorted(NOT_SERVED)
        if key not in left_out
    ]


def differences(line: str, left_out: set[int]) -> list[str]:
    """Compare a release with the real one; returns what differs. Raises KafkaError.

    Keys that are excused, which Kafka advertises and we do not, are added to `left_out`.
    """
    version = release(line).version
    name = ".".join(version.split(".")[:2])
    mode = "zookeeper" if release(line).zookeeper else "kraft"
    with RealKafka(line, mode=mode) as kafka:
        theirs = advertised(kafka.bootstrap, name)
    with RunningBroker({"kafka.version": name}) as broker:
        ours = advertised(broker.bootstrap, name)
    left_out |= excused(theirs.keys(), ours.keys())
    texts = [f"{version}: {text}" for text in compared(theirs, ours)]
    print(f"{version}: {len(theirs)} APIs, {len(texts)} differences", flush=True)
    return texts


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.releases", description=__doc__)
    parser.add_argument(
        "--lines",
        default="2.6,3.9,4.3.1,4.4",
        metavar="A,B",
        help="brokers that are started (default: %(default)s; none)",
    )
    parser.add_argument(
        "--jars",
        default="all",
        metavar="A,B",
        help="releases whose jars are read (default: %(default)s; none)",
    )
    parser.add_argument(
        "--messages",
        default="",
        metavar="VERSION",
        help="only: which messages of that release our codecs lack (4.4.0)",
    )
    options = parser.parse_args(argv)
    if options.messages:
        try:
            lacks = messages.lacking(options.messages)
        except KafkaError as error:
            print(f"compat.releases: {error}", file=sys.stderr)
            return 1
        print(*lacks, sep="\n")
        return 1 if lacks else 0
    jars = {"all": list(published.NEWEST), "none": []}.get(options.jars, options.jars.split(","))
    lines = [] if options.lines == "none" else options.lines.split(",")
    if unknown := set(jars) - published.NEWEST.keys():
        parser.error(f"no such release: {', '.join(unknown)}; there are {', '.join(published.NEWEST)}")
    try:
        texts = [text for name in jars for text in published.differences(name)]
        print(f"{len(jars)} releases' jars read, {len(texts)} differences from the table", flush=True)
        left_out: set[int] = set()
        texts += [text for line in lines for text in differences(line, left_out)]
        if options.lines == parser.get_default("lines"):
            texts += stale(left_out)
    except KafkaError as error:
        print(f"compat.releases: {error}", file=sys.stderr)
        return 1
    for text in texts:
        print(text)
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
