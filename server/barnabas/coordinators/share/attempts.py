"""Pauses before repeated requests to a leader that may have moved."""

from __future__ import annotations

from typing import Final

PAUSES: Final = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each attempt, the first one included."""
