"""One module per API, named like its generated message module.

Each module offers `async def handle(context, request) -> response | None` and opens with its contract. What a
handler may touch is reached through `context.broker`; nothing here opens files or sockets.
"""
