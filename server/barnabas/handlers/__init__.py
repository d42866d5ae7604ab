"""One module per API, named like its generated message module; its docstring is the API's contract, version by version.

Each has a handler class named like the API. Its `handle(context, request)` returns the response, or None for no response.
The class is a dataclass; its fields have the names of the services in `broker.services.Services` that it uses; it uses
nothing else, and opens neither files nor sockets.
"""
