"""Client telemetry (KIP-714): subscriptions of clients to metrics, checks of pushes, and pushed metrics. Pure."""
