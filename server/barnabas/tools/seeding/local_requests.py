"""Requests to a broker from its own process: no socket, no login, no authorizer, no quota.

The rule: the handlers of clients' requests answer these too, so that seeds and views are the same as for a client.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import trio

from barnabas.broker.handlers import Handlers
from barnabas.errors import RequestError
from barnabas.security.authorizer import AllowEverything
from barnabas.serving import apis
from barnabas.serving.context import ConnectionInfo, ContextParts, RequestContext
from barnabas.serving.error_responses import error_response
from barnabas.serving.log_limit import LogLimit
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.app import Broker

CLIENT_ID = "barnabas"
RETRY_S = 0.005
"""Seconds to wait before asking again for something that is just being made or loaded."""
_BY_NAME = {api.name: api for api in apis.BY_KEY.values()}
_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class LocalRequests:
    """Asks one broker, which may or may not listen yet."""

    def __init__(self, broker: Broker) -> None:
        listener = broker.listeners[0]
        address = listener.addresses[0]
        self.services = broker.services
        self.bootstrap = broker.bootstrap
        self._shared = ContextParts(broker.memory, LogLimit(), AllowEverything())
        self._connection = ConnectionInfo(
            0, listener.name, listener.security_protocol, address, address, principal=f"User:{CLIENT_ID}"
        )
        self._handlers = Handlers(broker.services)

    async def ask(self, request: Any, version: int) -> Any:
        """Return the response to a request of any API that there is; errors are in it, as a client sees them."""
        api = _BY_NAME[type(request).__name__.removesuffix("Request")]
        context = RequestContext(
            self._shared, self._connection, api.key, version, 0, CLIENT_ID, self.services.clock_ms()
        )
        try:
            return await self._handlers.answer(api, context, request)
        except RequestError as error:
            return error_response(api, context, request, error.code, error.message)
        finally:
            if context.reservation is not None:
                context.reservation.reduce(context.reservation.size)

    async def ask_until_known(self, request: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        """Repeat a request while `code_of` its response is a transient error."""
        while True:
            response = await self.ask(request, version)
            if code_of(response) not in _PASSING:
                return response
            await trio.to_thread.run_sync(time.sleep, RETRY_S)  # real time: the broker's clock may stand


def records_of(records: Any) -> bytes:
    """Return the records of a Fetch response, which may still be in a file."""
    if isinstance(records, FileRegion):
        return os.pread(records.fd, records.size, records.position)
    return bytes(records or b"")
