"""The first batch of a codec has its library loaded in a step of its own, which the broker runs in a thread.

LZ4 is none of them: whether its blocks depend on each other is looked at before, and its library is quickly loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from barnabas.records.compression import Codec

SCRIPT = """
import json, sys
from barnabas.records.batch import HEADER_SIZE, read_header, CRC_OFFSET
from barnabas.records.building import encode_batch
from barnabas.records.crc import crc32c
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from barnabas.records.steps import Work
from barnabas.records.validate import validate_steps

codec = int(sys.argv[1])
batch = bytearray(encode_batch([Record(0, 1, b"k", b"v", [])]))
batch[22] = codec
batch[CRC_OFFSET : CRC_OFFSET + 4] = crc32c(bytes(batch[CRC_OFFSET + 4 :])).to_bytes(4, "big")
steps = validate_steps(batch, api_version=7, config=AppendRules(record_validation="full"), now_ms=1)
step = next(steps)
print(json.dumps([isinstance(step, Work), [name for name in sys.modules if "barnabas.records.codecs." in name]]))
"""


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_a_library_is_loaded_in_a_step_of_its_own(codec: Codec) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(int(codec))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    is_work, loaded = json.loads(done.stdout)
    assert is_work
    assert f"barnabas.records.codecs.{codec.name.lower()}" not in loaded
