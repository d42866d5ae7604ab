"""Faults that a broker commits on purpose: rules, which requests they apply to, and what is done to the answers. Pure."""
