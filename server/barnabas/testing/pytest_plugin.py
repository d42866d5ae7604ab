"""Brokers as fixtures of pytest.

    def test_orders(kafka_broker):
        kafka_broker.create_topic("orders", partitions=3, records=["first"])
        my_application(kafka_broker.bootstrap)
        assert kafka_broker.records("orders")[0].value == b"first"

The rule: each test begins with the broker's initial contents (and those of its own marker), whatever other tests have
changed. A run without these fixtures imports no module of a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import AsyncKafkaBroker, KafkaBroker
    from barnabas.testing.cluster import KafkaCluster

SCOPES = ("session", "package", "module", "class", "function")
MODES = ("thread", "process")
_MARKER = (
    "kafka(topics=None, seeds=None, seed_file=None): what kafka_broker holds in this test beside its baseline: "
    "names of topics (or a mapping to their number of partitions), seeds as a mapping, seeds of a YAML file"
)
_CLUSTER_MARKER = (
    "kafka_cluster(brokers=3, controllers=None, settings=None): the shape of kafka_cluster in this test: so many brokers, "
    "the first of which are controllers too, or so many controllers beside them; settings of Kafka's for all nodes"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each may be in the configuration file, too."""
    group = parser.getgroup("barnabas", "Kafka brokers in tests")
    group.addoption("--kafka-scope", choices=SCOPES, help="how long a broker lives (default: session)")
    group.addoption("--kafka-mode", choices=MODES, help="where it runs (default: a thread of this process)")
    parser.addini(
        "kafka_scope",
        "how long a broker lives: session, package, module, class or function",
        default="session",
    )
    parser.addini("kafka_mode", "where it runs: thread or process", default="thread")
    parser.addini("kafka_settings", "its settings, each NAME=VALUE", type="linelist", default=[])
    parser.addini("kafka_seed_file", "a YAML file with what it begins with", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _CLUSTER_MARKER)


def _chosen(config: pytest.Config, name: str, choices: tuple[str, ...]) -> str:
    value = str(config.getoption(f"--kafka-{name}") or config.getini(f"kafka_{name}"))
    if value not in choices:
        raise pytest.UsageError(f"kafka_{name}: {value!r} is not one of {', '.join(choices)}")
    return value


def _scope(
    fixture_name: str,  # noqa: ARG001 (pytest gives it by this name)
    config: pytest.Config,
) -> Literal["session", "package", "module", "class", "function"]:
    return _chosen(config, "scope", SCOPES)  # type: ignore[return-value]


@pytest.fixture(scope="session")
def kafka_settings(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Kafka settings of the brokers; override the fixture for others."""
    settings = {}
    for line in request.config.getini("kafka_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"kafka_settings: {line!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def kafka_seeds(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """Initial contents of the brokers, as in a seed file; override the fixture for others."""
    path = request.config.getini("kafka_seed_file")
    if not path:
        return {}
    from barnabas.tools.seeding.files import document_of

    document: Mapping[str, Any] = document_of(request.config.rootpath / path)
    return document


@pytest.fixture(scope="session")
def kafka_start(
    request: pytest.FixtureRequest, kafka_settings: Mapping[str, str], kafka_seeds: Mapping[str, Any]
) -> Iterator[Callable[..., KafkaBroker]]:
    """Start further brokers: `kafka_start(settings={...}, seeds={...})`; all of them end with the run."""
    started: list[KafkaBroker] = []
    is_process = _chosen(request.config, "mode", MODES) == "process"

    def start(
        settings: Mapping[str, str] | None = None, *, seeds: Mapping[str, Any] | None = None
    ) -> KafkaBroker:
        from barnabas.testing import start_process, start_thread

        begin = start_process if is_process else start_thread
        broker = begin({**kafka_settings, **(settings or {})}, seeds=kafka_seeds if seeds is None else seeds)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.close()


@pytest.fixture(scope=_scope)
def kafka_shared_broker(kafka_start: Callable[..., KafkaBroker]) -> Iterator[KafkaBroker]:
    """The broker that tests of a scope share, for fixtures of that scope.

    Contents that such a fixture creates before `set_baseline()` remain for all tests.
    """
    broker = kafka_start()
    yield broker
    broker.close()


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest, kafka_shared_broker: KafkaBroker) -> KafkaBroker:
    """A broker with its baseline, and the contents of the test's marker `kafka`."""
    broker = kafka_shared_broker
    if broker.was_used:
        broker.reset()
    broker.was_used = True
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        _apply(request, broker, **marker.kwargs)
    return broker


def _apply(
    request: pytest.FixtureRequest,
    broker: KafkaBroker,
    *,
    topics: Any = None,
    seeds: Mapping[str, Any] | None = None,
    seed_file: str | None = None,
) -> None:
    """Apply a marker's contents to a broker."""
    named = dict.fromkeys(topics) if isinstance(topics, list | tuple | set) else topics
    if isinstance(named, str):
        named = {named: None}
    if named:
        broker.seed({"topics": dict(named)})
    if seeds:
        broker.seed(seeds)
    if seed_file:
        broker.seed(request.path.parent / seed_file)


@pytest.fixture
def kafka_start_cluster(
    request: pytest.FixtureRequest, kafka_settings: Mapping[str, str]
) -> Iterator[Callable[..., KafkaCluster]]:
    """Start clusters: `kafka_start_cluster(brokers=3, controllers=1, settings={...})`; all of them end with the test."""
    started: list[KafkaCluster] = []
    is_process = _chosen(request.config, "mode", MODES) == "process"

    def start(
        brokers: int = 3, controllers: int | None = None, settings: Mapping[str, str] | None = None
    ) -> KafkaCluster:
        from barnabas.testing import start_cluster, start_cluster_process

        begin = start_cluster_process if is_process else start_cluster
        cluster = begin(brokers, controllers=controllers, settings={**kafka_settings, **(settings or {})})
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_start_cluster: Callable[..., KafkaCluster]
) -> KafkaCluster:
    """A cluster for one test: three brokers that are also controllers, or the shape of the marker `kafka_cluster`."""
    shape: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("kafka_cluster"))):
        shape.update(zip(("brokers", "controllers", "settings"), marker.args, strict=False), **marker.kwargs)
    return kafka_start_cluster(**shape)


@pytest.fixture
def kafka_bootstrap(kafka_broker: KafkaBroker) -> str:
    """`host:port` for a client's bootstrap.servers."""
    return kafka_broker.bootstrap


@pytest.fixture
def kafka_async_broker(kafka_broker: KafkaBroker) -> AsyncKafkaBroker:
    """The broker of `kafka_broker` for asynchronous tests: its methods are awaited."""
    from barnabas.testing.broker import AsyncKafkaBroker

    return AsyncKafkaBroker(kafka_broker)
