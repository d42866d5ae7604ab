"""Files that every Protobuf schema may import without a reference.

The rule: the same files as in Confluent's registry: protobuf's own, Google's common types, and Confluent's.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from google.protobuf import descriptor_pb2

OWN = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip
COMMON = (
    "calendar_period", "color", "date", "datetime", "dayofweek", "expr", "fraction", "latlng", "money", "month",
    "postal_address", "quaternion", "timeofday",
)  # fmt: skip
_MODULES = {f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in OWN} | {
    f"google/type/{name}.proto": f"google.type.{name}_pb2" for name in COMMON
}
_META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option go_package = "../confluent";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """
syntax = "proto3";
package confluent.type;
option go_package = "../types";
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
_TEXTS = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}


def descriptor_of(name: str) -> Any | None:
    """Return the descriptor of a file that is known; None for any other."""
    if name in _MODULES:
        return descriptor_pb2.FileDescriptorProto.FromString(
            import_module(_MODULES[name]).DESCRIPTOR.serialized_pb
        )
    if name in _TEXTS:
        from barnabas.registry.formats.protobuf_text import read

        return read(_TEXTS[name], name)
    return None
