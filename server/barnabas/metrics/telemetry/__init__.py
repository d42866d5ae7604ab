"""Client telemetry (KIP-714): which metrics clients are to push, whether a push may be taken, and what was pushed. Pure."""
