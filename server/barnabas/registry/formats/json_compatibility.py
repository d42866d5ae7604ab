"""placeholder, replaced below."""

from barnabas.registry.formats.json_nodes import Node


def breaks(reader: Node, writer: Node) -> list[str]:
    """Say."""
    raise NotImplementedError
