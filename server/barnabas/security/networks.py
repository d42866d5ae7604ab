"""Networks as hosts of ACLs, as `10.0.0.0/8` and `2001:db8::/32` (KIP-1276, Kafka 4.4). Pure.

The rule: the syntax of networks is Kafka's, and an address is in a network by its bits, in any notation. Networks of
IPv4 have no addresses of IPv6, and vice versa; an IPv4 address mapped into IPv6 counts as IPv4.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

NETWORKS_KEPT: Final = 10_000
"""Networks, and addresses, that are not read again."""
IPV4_BITS, IPV6_BITS = 32, 128
OCTETS: Final = 4

Network = IPv4Network | IPv6Network


def network_of(host: str) -> Network:
    """Return the network in the host of an ACL. Raises ValueError with the fault of an invalid one."""
    address, slash, prefix = host.partition("/")
    if not slash:
        raise ValueError("there is no prefix length")
    if ":" not in host:
        return IPv4Network((_ipv4(address), _length(prefix, IPV4_BITS)), strict=False)
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    address, percent, zone = address.partition("%")
    if (
        percent and not zone.isdecimal()
    ):  # a number tells nothing; a name is that of an interface of some machine
        raise ValueError("a network has no zone")
    parsed = IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        raise ValueError(f"{address} is an address of IPv4")
    return IPv6Network((parsed, _length(prefix.removeprefix("+"), IPV6_BITS)), strict=False)


def check_host(host: str) -> None:
    """Raise ValueError unless the host is valid in an ACL: an address, which is not checked, a network, or `*`."""
    if not host:
        raise ValueError("Host pattern cannot be null or empty")
    if "/" in host:
        try:
            network_of(host)
        except ValueError as error:
            raise ValueError(f"Invalid CIDR notation '{host[:100]}': {error}") from None


def _ipv4(address: str) -> int:
    octets = address.split(".")
    if len(octets) != OCTETS or any(len(octet) > len("255") for octet in octets):
        raise ValueError(f"{address!r} is no address of IPv4")
    return int.from_bytes(bytes(_number(octet) for octet in octets), "big")


def _length(prefix: str, most: int) -> int:
    length = _number(prefix)
    if length > most or (most == IPV4_BITS and len(prefix) > len("32")):
        raise ValueError(f"the prefix length is at most {most}")
    return length


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text[:20]!r} is no number")
    return int(text)


@lru_cache(NETWORKS_KEPT)
def _known_network(host: str) -> Network | None:
    try:
        return network_of(host)
    except ValueError:
        return None


@lru_cache(NETWORKS_KEPT)
def _known_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def is_within(host: str, pattern: str) -> bool:
    """Return whether a client's address is in the network of an ACL; false for an invalid network."""
    if "/" not in pattern:
        return False
    network, address = _known_network(pattern), _known_address(host)
    return network is not None and address is not None and address in network
