"""Types of values between the pipeline's packages: arrays of numpy and of Arrow, documents of JSON.

The rule: nothing is imported from here at run time, so that numpy and Arrow are loaded only where they are used.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.integer]
"""Whole numbers, one for each row, such as offsets, times in ms, or numbers of rows."""
Mask: TypeAlias = NDArray[np.bool_]
"""Booleans, one for each row: true for the selected rows."""
Octets: TypeAlias = NDArray[np.uint8]
"""Bytes of records, concatenated."""
Column: TypeAlias = pa.Array | pa.ChunkedArray
"""A column of Arrow."""
Json: TypeAlias = Any
"""A value of JSON: None, bool, int, float, str, a list of such values, or a dict of them by str."""
Document: TypeAlias = dict[str, Json]
"""An object of JSON."""
Value: TypeAlias = Any
"""A field's value in a form for Arrow: None, bool, int, float, Decimal, str, bytes, a list, a dict, or pairs of a map."""
Row: TypeAlias = dict[str, Value]
"""Values by the names of their fields."""
