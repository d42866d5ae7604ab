"""Injected faults of a broker: rules, the requests that they apply to, and their effects on responses. Pure."""
