"""The cluster: its brokers, topics and settings, how they change, and where that is kept."""
