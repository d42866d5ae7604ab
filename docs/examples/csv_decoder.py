"""A format of the pipeline: rows of comma-separated values."""

from dataclasses import dataclass

from barnabas_pipeline.formats import RowDecoder


@dataclass(frozen=True, slots=True)
class CsvDecoder(RowDecoder):
    format = "csv"

    def decode_value(self, value):
        at, name, price = value.decode().split(",")
        return {"at": int(at), "name": name, "price": price}
