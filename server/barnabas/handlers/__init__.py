"""One module per API, named like its generated message module.

Each module offers `async def handle(context, request, *, services...) -> response | None` and opens with its contract. Its
keyword-only parameters name the services that it may touch, as in `broker.services.Services`, and nothing else; nothing
here opens files or sockets.
"""
