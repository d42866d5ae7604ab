"""Handlers of all APIs, each created with the services that it names, and the checks before them.

The rule: a handler is a class with a field for each service that it needs; it is imported and created when the first
request for its API arrives. Its method `handle` returns the response, or a `Deferred` of it; or it is a coroutine function.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME
from barnabas.serving import apis
from barnabas.serving.deferred import Deferred, resolved
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.broker.services import Services
    from barnabas.serving.context import RequestContext


class Handlers:
    """Handlers of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.made: dict[int, Callable[[RequestContext, Any], Any]] = {}

    def is_served(self, api: apis.Api) -> bool:
        """Return whether an API may be answered now.

        Before a broker of a cluster has metadata, the answer that a topic is unknown would end clients' retries; without an
        answer they try other brokers, as if this one did not listen yet.
        """
        services = self._services
        is_early = services.membership is not None and not services.metadata.image.brokers
        return not is_early or api.member_only or api.key in apis.SERVED_EARLY

    async def make(self, api: apis.Api) -> Callable[[RequestContext, Any], Any]:
        """Import codecs and handler of an API in a thread, which takes 70 ms for some, and create the handler."""
        forwarder = self._services.forwarder
        if forwarder is not None and api.forwarded:
            handle: Callable[[RequestContext, Any], Awaitable[Any]] = forwarder.forward
            if api.key in apis.DELEGATION_TOKENS:
                name = "barnabas.handlers.shared.token_refusals"
                refusals = await self._services.threads.run(partial(import_module, name))
                handle = partial(refusals.unless_refused, handle)
            self.made[api.key] = partial(deferred, handle)
            return self.made[api.key]
        await self._services.threads.run(partial(_load, api, self._services))
        handler = self.made[api.key] = handler_of(api, self._services)
        return handler

    def check(self, api: apis.Api, context: RequestContext, message: Any) -> None:
        """Raise the RequestError that refuses a whole request: a feature is off, it is denied, this is not the controller.

        Where a feature is off, a client that may not use it is answered as all are.
        """
        services = self._services
        if api.forwarded and services.forwarder is not None:
            return  # the active controller decides
        if api.feature and not self._is_on(api.feature):
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"{api.feature} is 0 in this cluster")
        require_whole(api, context, message)
        if api.controller and services.metadata.image.controller_id != services.broker_id:
            raise RequestError(ErrorCode.NOT_CONTROLLER)

    def _is_on(self, feature: str) -> bool:
        """Return whether a feature is on: in the cluster, or in the release if the cluster has no features."""
        services = self._services
        levels = services.metadata.image.features
        return services.release.has(feature) if levels is None else bool(levels.get(feature, 0))

    async def answer(self, api: apis.Api, context: RequestContext, message: Any) -> Any:
        """Check and handle a request of this process; requests of clients pass through `STAGES`. Raises RequestError."""
        handler = self.made.get(api.key) or await self.make(api)
        self.check(api, context, message)
        return await resolved(handler(context, message))


def handler_of(api: apis.Api, services: object) -> Callable[[RequestContext, Any], Any]:
    """Return a new handler with the services that it names, as a function that returns a response or a `Deferred`."""
    handler = api.handler(**{name: getattr(services, name) for name in services_of(api.handler)})
    handle: Callable[[RequestContext, Any], Any] = handler.handle
    return partial(deferred, handle) if iscoroutinefunction(handle) else handle


def require_whole(api: apis.Api, context: RequestContext, message: Any) -> None:
    """Raise RequestError for a client without the permission for a whole request."""
    if context.asks_authorizer:
        for operation, resource_type, named_by in api.whole:
            name = getattr(message, named_by) if named_by else CLUSTER_NAME
            context.require(operation, resource_type, name)


def deferred(
    handle: Callable[[RequestContext, Any], Awaitable[Any]], context: RequestContext, message: Any
) -> Deferred[Any]:
    """Return the response of a coroutine function as a Deferred."""
    return Deferred(partial(handle, context, message))


def services_of(handler: type[Any]) -> tuple[str, ...]:
    """Return the names of the services that a handler needs."""
    if not hasattr(handler, "__dataclass_fields__"):
        return ()
    return tuple(field.name for field in fields(handler) if field.init)


def _load(api: apis.Api, services: Services) -> None:
    api.load()
    services.load(services_of(api.handler))
    from barnabas.serving import error_responses

    assert error_responses
