"""Handlers with the services that they name, behind what Kafka asks first: a feature, the authorizer, the controller.

The rule: a handler is a coroutine function, or a plain one that answers at once and returns a `Later` where it cannot. What
stands before it is the same for both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from types import FunctionType
from typing import TYPE_CHECKING, Any

from barnabas.errors import RequestError
from barnabas.later import whole
from barnabas.security.authorizer import CLUSTER_NAME
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas import apis
    from barnabas.broker.services import Services
    from barnabas.cluster.store import MetadataStore
    from barnabas.requests.context import RequestContext

Handler = Callable[["RequestContext", Any], Awaitable[Any]]
Begin = Callable[["RequestContext", Any], Any]
"""Begins to handle a request: returns what is to be awaited, or the response or a `Later` if it `answers_at_once`."""


def answers_at_once(api: apis.Api) -> bool:
    """Return whether an API's handler is one that usually answers without waiting."""
    return not iscoroutinefunction(api.handle)


def ready(api: apis.Api, services: Services, *, asks_authorizer: bool = False) -> Handler:
    """Return an API's handler as one to be awaited."""
    begin = begun_by(api, services, asks_authorizer=asks_authorizer)
    return partial(_waited, begin) if answers_at_once(api) else begin


def begun_by(api: apis.Api, services: Services, *, asks_authorizer: bool = False) -> Begin:
    """Return an API's handler with its services and what stands before it.

    Where a feature is off, who may not use it is answered as everybody is.
    """
    begin = bound(api.handle, services)
    if api.controller:
        begin = partial(_by_controller, begin, services.metadata, services.broker_id)
    if asks_authorizer and api.whole:
        begin = partial(authorized, api, begin)
    if api.feature and (
        services.metadata.image.features is not None or not services.release.has(api.feature)
    ):
        begin = partial(_with_feature, api.feature, begin, services.metadata)
    return begin


def bound(handle: Callable[..., Any], services: Services) -> Begin:
    """Return a handler with the services that its keyword-only parameters name, as their defaults: no call passes them."""
    names = services_of(handle)
    if not names:
        return handle
    own = FunctionType(
        handle.__code__, handle.__globals__, handle.__name__, handle.__defaults__, handle.__closure__
    )
    own.__kwdefaults__ = {name: getattr(services, name) for name in names}
    return own


def load(api: apis.Api, services: Services) -> None:
    """Import codecs and handler of an API, what the handler's services need, and what refuses a request."""
    api.load()
    services.load(services_of(api.handle))
    from barnabas.handlers import errors

    assert errors


def services_of(handle: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the services that a handler needs."""
    code = handle.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def authorized(api: apis.Api, begin: Begin, context: RequestContext, request: Any) -> Any:
    """Handle a request if the whole of it is allowed. Raises RequestError."""
    for operation, resource_type, named_by in api.whole:
        context.require(operation, resource_type, getattr(request, named_by) if named_by else CLUSTER_NAME)
    return begin(context, request)


async def _waited(begin: Begin, context: RequestContext, request: Any) -> Any:
    """Handle a request by what answers at once, and wait where it does not."""
    return await whole(begin(context, request))


def _by_controller(
    begin: Begin, metadata: MetadataStore, broker_id: int, context: RequestContext, request: Any
) -> Any:
    """Handle a request if this broker is the controller. Raises NOT_CONTROLLER, upon which clients ask who is."""
    if metadata.image.controller_id != broker_id:
        raise RequestError(ErrorCode.NOT_CONTROLLER)
    return begin(context, request)


def _with_feature(
    feature: str, begin: Begin, metadata: MetadataStore, context: RequestContext, request: Any
) -> Any:
    """Handle a request if its feature is on in the cluster. Raises UNSUPPORTED_VERSION, as Kafka answers."""
    if not (metadata.image.features or {}).get(feature, 0):
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"{feature} is 0 in this cluster")
    return begin(context, request)
