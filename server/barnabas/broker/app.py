"""The broker: everything it owns, how it starts, and how it stops.

The rule: one nursery, one order. Start: listeners bound, logs, metadata, partitions, coordinators; only then they
listen, and the ready line is printed. Stop: listeners, connections, coordinators, logs, and last the clean-shutdown marker.
"""

from __future__ import annotations

import gc
import logging
import secrets
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas import apis, compiled, output
from barnabas.broker import housekeeping, storage
from barnabas.broker.buffers import BufferPool
from barnabas.broker.codecs import SWITCH_SECONDS, CodecWorker
from barnabas.broker.listener import Connections, Listener
from barnabas.broker.open_files import allow_open_files, connections_max
from barnabas.broker.stalls import StallMeter
from barnabas.broker.startup import (
    StartupError,
    advertised_listeners,
    bootstrap_of,
    listen,
    open_listeners,
    open_to_others,
    parse_metrics_address,
)
from barnabas.cluster.endpoints import advertised_endpoint
from barnabas.cluster.topic_creation import ensure_topics
from barnabas.config import broker as settings
from barnabas.coordination.groups import GroupCoordinator
from barnabas.coordination.internal_topics import (
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    InternalTopic,
)
from barnabas.coordination.markers import write_marker
from barnabas.coordination.producer_ids import ProducerIds
from barnabas.coordination.transactions import TransactionCoordinator
from barnabas.errors import RequestError, StorageError, lacks_files
from barnabas.groups.settings import GroupSettings, MigrationPolicy
from barnabas.log.disk import OsDisk
from barnabas.loop_budget import LoopBudget
from barnabas.replicas.flushing import Flusher
from barnabas.replicas.moving import LogMover
from barnabas.replicas.partitions import Partitions
from barnabas.requests.fetch_sessions import FetchSessions
from barnabas.requests.log_limit import LogLimit
from barnabas.requests.memory import REQUEST_BYTES_MAX, Memory
from barnabas.requests.piecework import Piecework
from barnabas.transactions.settings import TransactionSettings
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.metrics_endpoint import MetricsEndpoint
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordination.shares import Shares
    from barnabas.log.cleaner.cleaner import LogCleaner
    from barnabas.log.config import LogConfig
    from barnabas.log.disk import Disk
    from barnabas.log.manager import LogManager
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.requests.context import ConnectionInfo

log = logging.getLogger(__name__)

FULL_TOLD_INTERVAL_MS = 60_000  # how often the broker says that a disk is full


class Broker:
    """One running broker.

    Lifecycle: `Broker(config)`, then `await run()` in a task of its own; `run` reports readiness through
    `task_status` with the broker itself as the value, and returns after the clean stop that `stop()` asks for.
    """

    def __init__(
        self, config: BrokerConfig, *, now_ms: Callable[[], int] | None = None, disk: Disk | None = None
    ) -> None:
        self.config = config
        self.disk: Disk = disk or OsDisk()
        self.now_ms = now_ms or _wall_clock_ms
        self.broker_id = config.get(settings.NODE_ID)
        self.served = apis.served_by(config)
        self.frame_bytes_max = config.get(settings.SOCKET_REQUEST_MAX_BYTES)
        self.fetch_bytes_max = config.get(settings.FETCH_MAX_BYTES)
        self.budget = LoopBudget()
        self.piecework = Piecework(self.budget)
        self.log_limit = LogLimit()
        self.stalls = StallMeter(self.log_limit)
        self.budget.on_long_turn = self.stalls.long_turn
        self.buffers = BufferPool()
        self.codecs = CodecWorker()
        self.memory = Memory(
            queued if (queued := config.get(settings.QUEUED_MAX_REQUEST_BYTES)) > 0 else REQUEST_BYTES_MAX
        )
        self.fetch_sessions = FetchSessions(
            config.get(settings.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS), partial(secrets.randbelow, 2**31)
        )
        self.listeners: list[Listener] = []
        self.connections: Connections
        self.metrics: MetricsEndpoint | None = None
        self.cleaner: LogCleaner | None = None  # there once it has cleaned something
        self.logs: LogManager
        self.metadata: MetadataStore
        self.partitions: Partitions
        self.producer_ids: ProducerIds
        get = config.get
        self.group_settings = GroupSettings(
            session_timeout_ms_min=get(settings.GROUP_MIN_SESSION_TIMEOUT_MS),
            session_timeout_ms_max=get(settings.GROUP_MAX_SESSION_TIMEOUT_MS),
            initial_rebalance_delay_ms=get(settings.GROUP_INITIAL_REBALANCE_DELAY_MS),
            size_max=get(settings.GROUP_MAX_SIZE),
            offset_metadata_bytes_max=get(settings.OFFSET_METADATA_MAX_BYTES),
            offsets_retention_ms=get(settings.OFFSETS_RETENTION_MINUTES) * 60_000,
            offsets_commit_timeout_ms=get(settings.OFFSETS_COMMIT_TIMEOUT_MS),
            consumer_session_timeout_ms=get(settings.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
            consumer_heartbeat_interval_ms=get(settings.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
            consumer_assignment_interval_ms=get(settings.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS),
            consumer_size_max=get(settings.GROUP_CONSUMER_MAX_SIZE),
            consumer_assignors=get(settings.GROUP_CONSUMER_ASSIGNORS),
            streams_session_timeout_ms=get(settings.GROUP_STREAMS_SESSION_TIMEOUT_MS),
            streams_heartbeat_interval_ms=get(settings.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS),
            streams_size_max=get(settings.GROUP_STREAMS_MAX_SIZE),
            streams_standby_replicas=get(settings.GROUP_STREAMS_NUM_STANDBY_REPLICAS),
            streams_initial_rebalance_delay_ms=get(settings.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS),
            streams_assignment_interval_ms=get(settings.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS),
            share_session_timeout_ms=get(settings.GROUP_SHARE_SESSION_TIMEOUT_MS),
            share_heartbeat_interval_ms=get(settings.GROUP_SHARE_HEARTBEAT_INTERVAL_MS),
            share_size_max=get(settings.GROUP_SHARE_MAX_SIZE),
            migration_policy=MigrationPolicy(get(settings.GROUP_CONSUMER_MIGRATION_POLICY).lower()),
        )
        self.groups = GroupCoordinator(
            InternalTopic(self, OFFSETS_TOPIC),
            self.group_settings,
            self.now_ms,
            lambda: self.metadata.image,
            give_way=self.budget.checkpoint,
        )
        self.transactions = TransactionCoordinator(
            InternalTopic(self, TRANSACTION_TOPIC),
            TransactionSettings(
                timeout_ms_max=get(settings.TRANSACTION_MAX_TIMEOUT_MS),
                id_expiration_ms=get(settings.TRANSACTIONAL_ID_EXPIRATION_MS),
            ),
            self.now_ms,
            new_producer_id=self._new_producer_id,
            write_marker=partial(write_marker, self),
            give_way=self.budget.checkpoint,
        )
        self._shares: Shares | None = None
        self._telemetry: Telemetry | None = None
        self._background: trio.Nursery
        self.config_for_topic: Callable[[str], LogConfig]
        self._stopping = trio.Event()
        self._tell_full_again_ms = 0
        self.mover = LogMover(self)
        self.flusher = Flusher(self.now_ms, self.storage_failed)

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener, as a client on this machine can connect to it."""
        return bootstrap_of(self.listeners[0])

    def endpoint_of(self, broker_id: int, connection: ConnectionInfo) -> tuple[str, int, str | None]:
        """Host, port and rack under which the other end of `connection` can reach a broker."""
        return advertised_endpoint(self.metadata.image, broker_id, connection)

    def stop(self) -> None:
        """Ask for a clean stop; `run` returns when it is done."""
        self._stopping.set()

    async def run(self, *, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED) -> None:
        """Start, serve until `stop()`, and stop cleanly.

        Raises StartupError or StorageError, with everything closed again, when the broker cannot start.
        """
        advertised_listeners(self.config)
        try:
            self.listeners = open_listeners(
                self.config.listeners(), self.config.listener_security_protocols()
            )
            self._open_metrics(self.config.get(settings.METRICS_LISTENER))
            await storage.open_storage(self)
            try:
                self._listen()
                await self._serve(task_status)
            finally:
                with trio.CancelScope(shield=True):
                    await storage.close_storage(self)
        finally:
            for listener in self.listeners:
                listener.close()
            if self.metrics is not None:
                self.metrics.close()

    def _listen(self) -> None:
        """Let clients in, now that they can be answered; until then they are refused, not left waiting."""
        for listener in self.listeners:
            listen(listener)
        if self.metrics is not None:
            self.metrics.listen()

    def _open_metrics(self, address: str) -> None:
        """Listen for readers of metrics, if that is asked for; only then its libraries are imported."""
        if address:
            host, port = parse_metrics_address(address)
            from barnabas.broker.metrics_endpoint import MetricsEndpoint

            self.metrics = MetricsEndpoint(self, host, port)

    async def _serve(self, task_status: trio.TaskStatus[Broker]) -> None:
        with self.budget:
            await self._serve_measured(task_status)

    async def _serve_measured(self, task_status: trio.TaskStatus[Broker]) -> None:
        async with trio.open_nursery() as background:
            self._background = background
            background.start_soon(housekeeping.keep_house, self)
            background.start_soon(self.flusher.run)
            background.start_soon(self.memory.run)
            background.start_soon(self.log_limit.run)
            background.start_soon(self.mover.run)
            background.start_soon(self.groups.run)
            background.start_soon(self.transactions.run)
            connections = self.connections = Connections(
                background,
                idle_ms_max=self.config.get(settings.CONNECTIONS_MAX_IDLE_MS),
                count_max=connections_max(allow_open_files()),
            )
            if self.metrics is not None:
                background.start_soon(self.metrics.run)
            async with trio.open_nursery() as accepting:
                for listener in self.listeners:
                    accepting.start_soon(listener.accept_forever, self, connections)
                accepting.start_soon(connections.close_idle_forever)
                task_status.started(self)
                await self._stopping.wait()
                accepting.cancel_scope.cancel()
            for listener in self.listeners:
                listener.close()
            await connections.drain()
            background.cancel_scope.cancel()

    async def _new_producer_id(self) -> int:
        return await self.producer_ids.next()

    @property
    def shares(self) -> Shares:
        """Share groups; what they need is imported and started when the first of them is asked for."""
        if self._shares is None:
            from barnabas.coordination.shares import Shares

            self._shares = Shares(self)
            self._background.start_soon(self._shares.run)
        return self._shares

    @property
    def shares_if_any(self) -> Shares | None:
        """Share groups, None as long as nobody has asked for one."""
        return self._shares

    @property
    def telemetry(self) -> Telemetry:
        """What clients tell of themselves; made when the first of them asks what it is to push."""
        if self._telemetry is None:
            from barnabas.metrics.client_telemetry import Telemetry

            self._telemetry = Telemetry(self)
            self._background.start_soon(self._telemetry.run)
        return self._telemetry

    @property
    def telemetry_if_any(self) -> Telemetry | None:
        """What clients tell of themselves, None as long as none has asked."""
        return self._telemetry

    def connection_closed(self, connection_id: int) -> None:
        """A connection is at its end, and with it the share sessions and the client instance that began on it."""
        if self._shares is not None:
            self._shares.connection_closed(connection_id)
        if self._telemetry is not None:
            self._telemetry.instances.connection_closed(connection_id)

    async def ensure_topic(self, name: str) -> None:
        """Make a topic with the broker's defaults, unless it is there. Raises RequestError, StorageError."""
        refused = await ensure_topics(self, [name])
        if name in refused:
            raise refused[name]

    def storage_failed(self, error: StorageError) -> RequestError:
        """Take the log dir that failed offline, with its partitions; stop when it was the last one.

        A missing file takes offline only what is gone: see `LogManager.lose_missing`.
        A dir that is only full stays online: what is in it can be read, and perhaps somebody makes room. So does one of
        which no more files can be opened. Returns the
        error for the client whose request met it.
        """
        if error.is_full:
            now_ms = self.now_ms()
            if now_ms >= self._tell_full_again_ms:
                self._tell_full_again_ms = now_ms + FULL_TOLD_INTERVAL_MS
                if lacks_files(error.cause):
                    log.error("%s; that was refused: allow more open files (ulimit -n)", error)
                else:
                    log.error("%s; nothing can be written until there is room again", error)
        elif error.log_dir not in self.logs.offline:
            if error.is_missing:
                lost = self.logs.lose_missing(error)
            else:
                lost = self.logs.take_offline(error.log_dir, error)
            self.partitions.lose(lost)
            if not self.logs.online:
                log.critical("no log dir works any more: stopping")
                self.stop()
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def run(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the process's exit code."""
    code = 0
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        trio.run(_run_until_signalled, config, restrict_keyboard_interrupt_to_checkpoints=True)
    except* (StartupError, StorageError) as group:
        for error in _leaves(group):
            print(f"barnabas: {error}", file=sys.stderr)
        code = 1
    return code


async def _run_until_signalled(config: BrokerConfig) -> None:
    broker = Broker(config)
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(*_end_signals()) as signals:
            nursery.start_soon(_stop_when_signalled, signals, broker)
            await nursery.start(_run_then_cancel, broker, nursery.cancel_scope)
            _settle_garbage_collector()
            _say_ready(broker)
            await trio.sleep_forever()


def _say_ready(broker: Broker) -> None:
    """Print the ready line, with the data last since a path may hold spaces. Raises StartupError."""
    wide = open_to_others(broker.listeners)
    if wide:
        log.warning(
            "other machines can connect to %s, and there is no authentication: whoever can connect can read, write and "
            "delete everything (--listen localhost:PORT serves this machine only)", ", ".join(wide),
        )  # fmt: skip
    metrics = f" metrics={broker.metrics.url}" if broker.metrics is not None else ""
    code = "compiled" if compiled.IN_USE else "interpreted"
    data = ",".join(broker.config.log_dirs)
    try:
        print(
            f"barnabas is ready: bootstrap.servers={broker.bootstrap}{metrics} code={code} data={data}",
            flush=True,
        )
        if sys.stdout.isatty():
            print(f"Clients connect to {broker.bootstrap}; Ctrl-C stops the broker.", flush=True)
    except OSError as error:
        raise StartupError(
            output.explain(error) or f"cannot say that the broker is ready: {error}"
        ) from error


async def _run_then_cancel(
    broker: Broker, scope: trio.CancelScope, *, task_status: trio.TaskStatus[Broker]
) -> None:
    await broker.run(task_status=task_status)
    scope.cancel()


def _end_signals() -> list[signal.Signals]:
    """The signals that stop the broker cleanly; one that `nohup` or the like has ignored stays ignored."""
    others = (signal.SIGHUP, signal.SIGQUIT)
    return [
        signal.SIGTERM,
        signal.SIGINT,
        *(one for one in others if signal.getsignal(one) is not signal.SIG_IGN),
    ]


async def _stop_when_signalled(signals: object, broker: Broker) -> None:
    async for number in signals:  # type: ignore[attr-defined]
        log.info("stopping on %s", signal.Signals(number).name)
        broker.stop()


def _settle_garbage_collector() -> None:
    """What start-up made stays; collecting it again and again would only cost pauses."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
