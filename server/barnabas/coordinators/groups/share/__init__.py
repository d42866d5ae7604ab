"""Members of share groups (KIP-932): a group on `__consumer_offsets`, so it is here and not in `share`. Pure."""
