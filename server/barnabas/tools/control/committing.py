"""Execution of faults on a request, its response and its connection.

The rule: a broker has one instance from its first rule on, which outlives the broker's restarts; the engine decides
whether a rule strikes, and this module carries out its effect.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import trio

from barnabas.broker.controller_apis import CONTROLLER
from barnabas.errors import RequestError
from barnabas.serving import apis
from barnabas.serving.error_responses import error_response, partial_error_response
from barnabas.tools.control import partial
from barnabas.tools.control.delivery import Delivery, deliver
from barnabas.tools.control.stale import stale_answer
from barnabas.tools.faults import batches, naming
from barnabas.tools.faults.actions import AFTER, BEFORE
from barnabas.tools.faults.engine import FETCHES
from barnabas.tools.faults.events import CONNECT, REQUEST
from barnabas.tools.faults.matching import Subject
from barnabas.tools.faults.paths import code_of
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.network.transport import Transport
    from barnabas.serving.apis import Api
    from barnabas.serving.context import RequestContext
    from barnabas.serving.request_parts import Handler
    from barnabas.serving.seams import Taker
    from barnabas.tools.faults.engine import Faults, Verdict
    from barnabas.tools.faults.rule import Rule
    from barnabas.wire.regions import Chunk

METADATA = 3
SPLIT = frozenset((0, 8, 19, 20, 21, 28, 37))
"""APIs that write, in which some topics can be refused and the rest done."""
MARKED = FETCHES | {2, 3, 9, 23, 61, 75}
"""APIs that read: all of it is done, and a part of the answer replaced."""
KEPT_MAX = 1000
"""Responses held back until the next one on their connection; beyond, the oldest is dropped."""
DISCARDED_BYTES = 64 * 1024


class Committing:
    """Commits the faults of one broker."""

    def __init__(
        self,
        faults: Faults,
        broker: Broker | None,
        *,
        clock_ms: Callable[[], float],
        kill: Callable[[], None],
        restart: Callable[[], None],
        controller_listeners: Collection[str] = (),
    ) -> None:
        """`clock_ms` is for conditions on time; `kill` and `restart` request that of the broker.

        `controller_listeners` are those of the controller in a combined node.
        """
        self._faults = faults
        self._controller_listeners = controller_listeners
        self._clock_ms = clock_ms
        self._kill = kill
        self._restart = restart
        self._broker: Broker | None = None
        self._kept: OrderedDict[int, list[Chunk]] = OrderedDict()
        self._images: dict[str, ClusterImage] = {}
        self._images_of = -1
        self.attach(broker)

    def attach(self, broker: Broker | None) -> None:
        """Inject faults into this broker."""
        self._broker = broker
        self._kept.clear()
        self._pin_images()

    # --- requests -------------------------------------------------------------------------------------------

    async def answer(self, context: RequestContext, request: Any, handler: Handler) -> Any:
        """Answer a request under the faults. Raises RequestError, like a handler."""
        faults, connection = self._faults, context.connection
        verdict = faults.judge(
            Subject(
                REQUEST,
                self._clock_ms(),
                context.api_key,
                context.api_version,
                context.client_id,
                connection.principal,
                connection.listener,
                connection.connection_id,
                lambda: naming.topic_partitions(request, self._name_of),
                lambda: naming.groups(request),
                connection.listener in self._controller_listeners,
            )
        )
        if faults.version != self._images_of:
            self._pin_images()
        if not verdict:
            return await handler(context, request)
        return await self._commit(verdict, context, request, handler)

    async def _commit(self, verdict: Verdict, context: RequestContext, request: Any, handler: Handler) -> Any:
        """Carry out the rules that strike. Raises RequestError."""
        if hold_s := verdict.total("hold_ms") / 1000:
            await trio.sleep(hold_s)
        if self._ends(verdict, context, BEFORE) or verdict.first("drop") == "request":
            return None
        if verdict.first("expire"):
            self._expire_member(request)
        context.delivery = Delivery.of(verdict)
        try:
            response = await self._answer(verdict, context, request, handler)
        except RequestError as error:
            response = self._refusal(context, request, error.code, error.message)
        if verdict.pending:
            topics = list(naming.topic_partitions(response, self._name_of))
            filled = self._with_records(response) if context.api_key == apis.FETCH else []
            self._faults.judge_answer(verdict, topics, filled)
            context.delivery = Delivery.of(verdict)
        if response is not None:
            self._spoil(verdict, context, response)
        for rule in verdict.having("error_after"):
            response = self._failed(rule, rule.do["error_after"], context, request, response)
        if self._ends(verdict, context, AFTER) or verdict.first("drop") == "answer":
            return None
        return response

    def _ends(self, verdict: Verdict, context: RequestContext, when: str) -> bool:
        """End the process, the broker or the connection, if that is to happen now; returns whether it does."""
        if verdict.first("kill") == when:
            self._kill()
        elif verdict.first("restart") == when:
            self._restart()
        elif when not in (verdict.first("close"), verdict.first("reset")):
            return False
        context.delivery = Delivery(end="reset" if verdict.first("close") != when else "close")
        return True

    async def _answer(self, verdict: Verdict, context: RequestContext, request: Any, handler: Handler) -> Any:
        """Return the answer to a request: an error, a stale one, or the handler's. Raises RequestError."""
        for rule in verdict.having("error"):
            if "at" in rule.do:
                continue
            code = rule.do["error"]
            if not rule.match.is_partial or context.api_key not in SPLIT | MARKED:
                raise RequestError(code, f"fault {rule.name}")
            if context.api_key in SPLIT:
                return await self._answer_partly(rule, code, context, request, handler)
        if context.api_key == METADATA and self._broker is not None:
            for rule in verdict.having("stale"):
                if rule.name in self._images:
                    return await stale_answer(
                        self._broker.services, self._images[rule.name], context, request
                    )
        return await handler(context, request)

    async def _answer_partly(
        self, rule: Rule, code: int, context: RequestContext, request: Any, handler: Handler
    ) -> Any:
        """Refuse the topics and partitions that match a rule, and handle the others. Raises RequestError."""
        hit, rest = partial.split(request, rule.match, self._name_of)
        if rest is None or hit is None:
            raise RequestError(code, f"fault {rule.name}")
        response = await handler(context, rest)
        if response is not None:
            refused = partial_error_response(_api(context), hit, code)
            partial.merge(response, refused, self._name_of)
        return response

    def _spoil(self, verdict: Verdict, context: RequestContext, response: Any) -> None:
        """Change a response by the rules."""
        for rule in verdict.rules:
            do = rule.do
            if "at" in do:
                do["at"].put(response, do["error"])
            elif "error" in do and rule.match.is_partial and context.api_key in MARKED:
                partial.mark(response, rule.match, do["error"], self._name_of)
            for path, value in do.get("set", {}).items():
                path.put(response, _value(path, value))
            if "corrupt" in do and context.api_key == apis.FETCH:
                self._corrupt(rule, response)
            if "throttle_ms" in do:
                context.connection.muted_ms = max(context.connection.muted_ms, do["throttle_ms"])
                if hasattr(response, "throttle_time_ms"):
                    response.throttle_time_ms = do["throttle_ms"]

    def _with_records(self, response: Any) -> list[tuple[str, int | None]]:
        """Return the topics and partitions of a Fetch answer that have records."""
        return [
            (naming.topic_of(topic, self._name_of) or "", partition.partition_index)
            for topic in (response.responses if response is not None else ())
            for partition in topic.partitions
            if partition.records
        ]

    def _corrupt(self, rule: Rule, response: Any) -> None:
        """Damage the records of the partitions that a rule is about."""
        for topic in response.responses:
            name = naming.topic_of(topic, self._name_of) or ""
            for partition in topic.partitions:
                records = partition.records
                if records and rule.match.covers(name, partition.partition_index):
                    partition.records = batches.damaged(_read(records), rule.do["corrupt"], rule.chance)

    def _failed(self, rule: Rule, code: int, context: RequestContext, request: Any, response: Any) -> Any:
        """Return an error answer to a request that succeeded."""
        if rule.match.is_partial and response is not None and context.api_key in SPLIT | MARKED:
            partial.mark(response, rule.match, code, self._name_of)
            return response
        return self._refusal(context, request, code, f"fault {rule.name}")

    @staticmethod
    def _refusal(context: RequestContext, request: Any, code: int, message: str) -> Any:
        return error_response(_api(context), context, request, code, message)

    async def send(self, context: RequestContext, transport: Transport, chunks: list[Chunk]) -> bool:
        """Send a response under the faults; false when the connection must be closed. Raises OSError."""
        delivery = context.delivery
        number = context.connection.connection_id
        if isinstance(delivery, Delivery):
            if delivery.is_kept and chunks:
                self._keep(number, chunks)
                return True
            if not await deliver(delivery, transport, chunks):
                return False
        elif chunks:
            await transport.send(chunks)
        if chunks and number in self._kept:
            await transport.send(self._kept.pop(number))
        return True

    def _keep(self, number: int, chunks: list[Chunk]) -> None:
        """Hold back an answer; an answer that is already held back is sent after it."""
        self._kept[number] = chunks + self._kept.pop(number, [])
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    # --- connections ----------------------------------------------------------------------------------------

    def meet(self, listener: str) -> Taker | None:
        """Return the taker of a connection before the broker; None if no fault applies."""
        verdict = self._faults.judge(
            Subject(
                CONNECT,
                self._clock_ms(),
                listener=listener,
                is_beside_clients=listener in self._controller_listeners,
            )
        )
        if not verdict:
            return None

        async def take(transport: Transport) -> bool:
            if delay_s := verdict.total("delay_ms") / 1000:
                await trio.sleep(delay_s)
            if verdict.first("refuse"):
                transport.reset()
                return False
            if verdict.first("hang"):
                await _ignore(transport)
                return False
            return True

        return take

    # --- facts about the broker -----------------------------------------------------------------------------

    def _name_of(self, topic_id: bytes) -> str | None:
        return self._broker.services.metadata.image.topic_name(topic_id) if self._broker is not None else None

    def _expire_member(self, request: Any) -> None:
        """End the session of the member that a request names, if its group has that member."""
        group, member = getattr(request, "group_id", None), getattr(request, "member_id", None)
        if group and member and self._broker is not None:
            self._broker.services.group_coordinator.end_timer(("session", group, member))

    def _pin_images(self) -> None:
        """Remember the present cluster for new rules that refer to it later."""
        if self._broker is None:
            return
        rules = self._faults.rules
        image = self._broker.services.metadata.image
        self._images = {
            name: self._images.get(name, image) for name, rule in rules.items() if "stale" in rule.do
        }
        self._images_of = self._faults.version


def _api(context: RequestContext) -> Api:
    """Return the row of a request's API, be it a broker's or a controller's."""
    key = context.api_key
    return apis.BY_KEY.get(key) or apis.QUORUM_ONLY.get(key) or CONTROLLER.apis[key]


def _value(path: Any, value: Any) -> Any:
    """Return a number for the name of an error code."""
    return code_of(value) if path.segments[-1].name.endswith("error_code") else value


def _read(records: Any) -> bytes:
    """Return records, be they in memory or in a file."""
    if isinstance(records, FileRegion):
        return os.pread(records.fd, records.size, records.position)
    return bytes(records)


async def _ignore(transport: Transport) -> None:
    """Read and ignore data until the peer has closed."""
    scratch = memoryview(bytearray(DISCARDED_BYTES))
    while True:
        await transport.wait_readable(soon=False)
        if transport.receive_now(scratch) == 0:
            return
        await trio.lowlevel.checkpoint()
