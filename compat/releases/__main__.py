"""python -m compat.releases: what `--as-version` advertises, beside Apache Kafka of that release.

First the whole table is held against the `ApiKeys` in the clients' jar of each release (`--jars`), then brokers of ours
against real ones that are started (`--lines`). Ends with 1 when a key or a version differs that is not in `NOT_SERVED`.
"""

from __future__ import annotations

import argparse
import sys

from barnabas.testing import RunningBroker
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from compat.kafka import KafkaError, RealKafka, release
from compat.releases import messages, published
from tests.support.raw_client import RawClient

NOT_SERVED = {55, 58, 64, 80, 81, 94}
"""What brokers forward to controllers, and the quorum's own APIs (docs/reference/not-implemented.md)."""
TELEMETRY = {71, 72}
"""Advertised where somebody asks for metrics."""
SINCE_SOFTWARE_NAMES = "2.4"


def advertised(bootstrap: str, name: str) -> dict[int, tuple[int, int]]:
    """Ask for (first, last) version by key."""
    is_old = tuple(map(int, name.split("."))) < tuple(map(int, SINCE_SOFTWARE_NAMES.split(".")))
    request = ApiVersionsRequest(client_software_name="compat", client_software_version="1")
    with RawClient(bootstrap) as client:
        answer = client.ask(request, 0 if is_old else 3)
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def differences(line: str) -> list[str]:
    """Compare a release with the real one; returns what differs. Raises KafkaError."""
    version = release(line).version
    name = ".".join(version.split(".")[:2])
    mode = "zookeeper" if release(line).zookeeper else "kraft"
    with RealKafka(line, mode=mode) as kafka:
        theirs = advertised(kafka.bootstrap, name)
    with RunningBroker({"kafka.version": name}) as broker:
        ours = advertised(broker.bootstrap, name)
    excused = (NOT_SERVED | TELEMETRY) - ours.keys()
    found = [
        f"{version}: API {key}: Kafka {theirs.get(key)}, ours {ours.get(key)}"
        for key in sorted((theirs.keys() | ours.keys()) - excused)
        if theirs.get(key) != ours.get(key)
    ]
    print(f"{version}: {len(theirs)} APIs, {len(found)} differences", flush=True)
    return found


def main(given: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.releases", description=__doc__)
    parser.add_argument(
        "--lines",
        default="2.6,3.9,4.x,4.4",
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
    options = parser.parse_args(given)
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
        found = [text for name in jars for text in published.differences(name)]
        print(f"{len(jars)} releases' jars read, {len(found)} differences from the table", flush=True)
        found += [text for line in lines for text in differences(line)]
    except KafkaError as error:
        print(f"compat.releases: {error}", file=sys.stderr)
        return 1
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
