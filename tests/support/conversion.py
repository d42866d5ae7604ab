"""Conversion of message sets as a leader does it, without a leader."""

from barnabas.records.batch import DECOMPRESSED_BYTES_MAX, MAGIC_OFFSET
from barnabas.records.building import join_batch
from barnabas.records.compression import Output
from barnabas.records.convert import up_convert_steps
from barnabas.records.steps import run


def up_convert(raw, header):
    """A message set of v0 or v1 as one batch that is as `header` says."""
    magic = raw[MAGIC_OFFSET] if raw else 0
    out = Output(header.codec, None, 1 << 40, lambda size: AssertionError(f"{size} bytes"))
    steps = up_convert_steps(
        raw, header, out, magic=magic, judge=lambda *_: True, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
    )
    run(steps)
    return bytes(join_batch(header, run(out.finish_steps())))
