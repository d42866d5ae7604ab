"""Client quotas: entities, precedence of quotas, rates and token buckets (KIP-13, 55, 124, 219, 546, 599, 612)."""
