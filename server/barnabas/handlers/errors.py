"""An error for the whole request, put into every place of the API's response where a client looks for it.

A response either has an error code of its own at the top, or one per topic, partition, group or resource that the
request named. Which of them an API has is read off its response class; only the echo of what was asked is special.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.wire import registry

if TYPE_CHECKING:
    from barnabas.apis import Api
    from barnabas.broker.context import RequestContext

log = logging.getLogger(__name__)


def error_response(api: Api, context: RequestContext, request: Any, code: int, message: str) -> Any:
    """The response of `api` that says `code`; None where that API version has no place for an error."""
    log.info("%s from client %r on %s refused: %s", api.name, context.client_id, context.connection, message or code)
    response = registry.response_codec(api.key).message()
    if hasattr(response, "error_code"):
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = message or None
        return response
    echo = _ECHOES.get(api.key)
    if echo is None:
        context.close_after_response = True
        return None
    echo(response, request, code, message)
    return response


def _metadata(response: Any, request: Any, code: int, message: str) -> None:  # noqa: ARG001
    for topic in request.topics or ():
        response.topics.append(type(response).MetadataResponseTopic(error_code=code, name=topic.name))


_ECHOES: dict[int, Any] = {3: _metadata}
