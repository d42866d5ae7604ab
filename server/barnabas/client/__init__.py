"""A Kafka client for Trio programs, on the generated codecs: any API in any version that broker and codecs share.

    async with open_client("localhost:9092") as client:
        response = await client.ask_leader("events", 0, request)

The rule: it moves messages, and knows where they go. What they mean (groups, transactions, batching) is up to its user.
"""

from barnabas.client.client import Client, open_client
from barnabas.client.connection import Connection, Dial
from barnabas.client.errors import (
    AuthenticationError,
    ClientError,
    ClosedError,
    ConnectionLostError,
    ResponseError,
    UnsupportedVersionError,
)
from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap

__all__ = [
    "AuthenticationError",
    "Client",
    "ClientError",
    "ClientSettings",
    "ClosedError",
    "Connection",
    "ConnectionLostError",
    "Dial",
    "Endpoint",
    "ResponseError",
    "UnsupportedVersionError",
    "open_client",
    "parse_bootstrap",
]
