"""A plain `barnabas serve` and `test-server` import only what they use until they answer.

The parts that only some brokers have come with their first use.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from barnabas.testing.running import import_path
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from tests.e2e.conftest import StartBroker
from tests.support.raw_client import RawClient
from tests.support.systems import in_proc

ROOT = Path(__file__).parents[2]
HEAP_BYTES = 64 * 1024 * 1024
"""Size that glibc reserves for the heap of a thread, at a multiple of it."""
MODULES_MAX = 181
"""Limit of modules of Barnabas that are imported until then; each costs about 0.3 ms. Packages do not count."""
NOT_AT_START = (
    "_hashlib",
    "_ssl",
    "barnabas.client",
    "barnabas.cluster.metadata.access_changes",
    "barnabas.cluster.metadata.credentials",
    "barnabas.cluster.metadata.delegation_tokens",
    "barnabas.cluster.zookeeper",
    "barnabas.tools.control",
    "barnabas.cluster.controller.core",
    "barnabas.tools.demo",
    "barnabas.tools.faults",
    "barnabas.coordinators.groups.shard",
    "barnabas.tools.localcluster",
    "barnabas.log.config",
    "barnabas.log.recovery.loading",
    "barnabas.log.partition_log",
    "barnabas.network.kerberos",
    "barnabas.network.tls",
    "barnabas.records.batch",
    "barnabas.cluster.replicas.replica",
    "barnabas.security.scram",
    "barnabas.tools.seeding",
    "barnabas.coordinators.share",
    "barnabas.metrics.telemetry",
    "barnabas.coordinators.transactions.shard",
    "barnabas.tools.zkserver",
    "click",
    "concurrent.futures",
    "cryptography",
    "google",
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
OF_TEST_SERVERS = (
    "barnabas.tools.control",
    "barnabas.tools.faults",
    "barnabas.tools.faults.engine",
    "barnabas.tools.faults.errors",
    "barnabas.tools.faults.events",
)
"""Modules of these that a test server has: a host that records and may commit faults, and its control API."""
NOT_IN_TEST_SERVERS = (
    *(module for module in NOT_AT_START if module not in OF_TEST_SERVERS),
    "barnabas.tools.control.committing",
    "barnabas.tools.control.delivery",
    "barnabas.tools.control.http",
    "barnabas.tools.control.openapi",
    "barnabas.tools.control.routes",
    "barnabas.tools.inspection",
    "barnabas.testing.broker",
    "barnabas.testing.in_process",
    "barnabas.testing.records",
)
IN_TEST_SERVERS_MAX = 15
"""Limit of modules of Barnabas beyond those of a plain start."""


def test_a_plain_broker_imports_only_what_it_uses_at_once(start_broker: StartBroker) -> None:
    broker = start_broker(program=(sys.executable, "-X", "importtime", "-m", "barnabas"))
    with RawClient(broker.bootstrap) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert broker.stop() == 0
    judge(imported_in(broker.said()), NOT_AT_START, MODULES_MAX)


def test_test_server_imports_control_api_on_first_request(tmp_path: Path) -> None:
    output = tmp_path / "said"
    environment = {**os.environ, "PYTHONPATH": import_path()}
    arguments = [sys.executable, "-X", "importtime", "-m", "barnabas", "test-server"]
    with (
        output.open("wb") as log,
        subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with RawClient(ready["bootstrap_servers"]) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        at_start = imported_in(output.read_text())
        # The control API answers all the same, and a fault is committed.
        with urllib.request.urlopen(f"{ready['control_url']}/v1/broker", timeout=20) as answer:
            assert json.load(answer)["ready"]
        rule = json.dumps({"short": "ApiVersions -> error=UNKNOWN_SERVER_ERROR"}).encode()
        with urllib.request.urlopen(f"{ready['control_url']}/v1/faults", rule, timeout=20) as answer:
            assert answer.status == 200
        with RawClient(ready["bootstrap_servers"]) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == -1
    assert process.returncode == 0
    assert {"h11", "barnabas.tools.control.openapi"} <= imported_in(output.read_text())
    judge(at_start, NOT_IN_TEST_SERVERS, MODULES_MAX + IN_TEST_SERVERS_MAX)


def imported_in(text: str) -> set[str]:
    """Imported modules; not those of `import_module`: codecs and handlers, which come with the first request for each."""
    return set(re.findall(r"^import time:.*\| +([\w.]+)$", text, re.MULTILINE))


def is_package(name: str) -> bool:
    return (ROOT / "server" / name.replace(".", "/")).is_dir()


def judge(imported: set[str], in_vain: Sequence[str], count_max: int) -> None:
    assert {"trio", "barnabas.broker.assembly"} <= imported
    result = [module for module in imported if any(f"{module}.".startswith(f"{part}.") for part in in_vain)]
    assert not result
    ours = sorted(module for module in imported if module.startswith("barnabas.") and not is_package(module))
    assert len(ours) <= count_max, "\n".join(ours)


def test_threads_have_no_heaps_of_their_own(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert threads_of(broker.process.pid) > 1
    assert heaps_of_threads(broker.process.pid) == 0


def threads_of(pid: int) -> int:
    return len(list(in_proc(f"{pid}/task").iterdir()))


def heaps_of_threads(pid: int) -> int:
    """Return how many heaps there are beside that of the main thread."""
    spans: list[list[int]] = []
    for line in in_proc(f"{pid}/maps").read_text().splitlines():
        addresses, *rest = line.split()
        if len(rest) > 4:  # of a file
            continue
        begin, end = (int(entry, 16) for entry in addresses.split("-"))
        if spans and spans[-1][1] == begin:
            spans[-1][1] = end
        else:
            spans.append([begin, end])
    return sum(begin % HEAP_BYTES == 0 and end - begin >= HEAP_BYTES for begin, end in spans)
