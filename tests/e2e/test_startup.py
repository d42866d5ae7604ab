"""What a plain `barnabas serve` imports until it answers; parts that only some brokers have come with their first use."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from barnabas.wire.generated.api_versions import ApiVersionsRequest
from tests.e2e.conftest import StartBroker
from tests.support.raw_client import RawClient

HEAP_BYTES = 64 * 1024 * 1024
"""What glibc reserves for the heap of a thread, at a multiple of it."""
MODULES_MAX = 190
"""How many modules of Barnabas may be imported until then; each costs about 0.3 ms."""
NOT_AT_START = (
    "barnabas.client",
    "barnabas.cluster.access_changes",
    "barnabas.cluster.credentials",
    "barnabas.cluster.delegation_tokens",
    "barnabas.cluster.zookeeper",
    "barnabas.control",
    "barnabas.controller.core",
    "barnabas.demo",
    "barnabas.faults",
    "barnabas.groups.shard",
    "barnabas.localcluster",
    "barnabas.log.config",
    "barnabas.log.loading",
    "barnabas.log.partition_log",
    "barnabas.network.kerberos",
    "barnabas.network.tls",
    "barnabas.records.batch",
    "barnabas.replicas.replica",
    "barnabas.security.scram",
    "barnabas.seeding",
    "barnabas.share",
    "barnabas.telemetry",
    "barnabas.transactions.shard",
    "barnabas.zkserver",
    "concurrent.futures",
    "cryptography",
    "gssapi",
    "h11",
    "joserfc",
    "kazoo",
    "opentelemetry",
    "prometheus_client",
    "re2",
    "urllib.request",
    "xxhash",
    "yaml",
)
"""Packages and modules, with all that is in them."""


def test_a_plain_broker_imports_only_what_it_uses_at_once(start_broker: StartBroker) -> None:
    broker = start_broker(program=(sys.executable, "-X", "importtime", "-m", "barnabas"))
    with RawClient(broker.bootstrap) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert broker.stop() == 0
    # What `import_module` imports is not among them: codecs and handlers, which come with the first request for each.
    imported = set(re.findall(r"^import time:.*\| +([\w.]+)$", broker.said(), re.MULTILINE))
    assert "trio" in imported
    assert "barnabas.broker.assembly" in imported
    in_vain = [one for one in imported if any(f"{one}.".startswith(f"{part}.") for part in NOT_AT_START)]
    assert not in_vain
    ours = sorted(one for one in imported if one.startswith("barnabas."))
    assert len(ours) <= MODULES_MAX, "\n".join(ours)


def test_threads_have_no_heaps_of_their_own(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert threads_of(broker.process.pid) > 1
    assert heaps_of_threads(broker.process.pid) == 0


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def heaps_of_threads(pid: int) -> int:
    """Return how many heaps there are beside that of the main thread."""
    spans: list[list[int]] = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, *rest = line.split()
        if len(rest) > 4:  # of a file
            continue
        begin, end = (int(one, 16) for one in addresses.split("-"))
        if spans and spans[-1][1] == begin:
            spans[-1][1] = end
        else:
            spans.append([begin, end])
    return sum(begin % HEAP_BYTES == 0 and end - begin >= HEAP_BYTES for begin, end in spans)
