"""Mutation tests: small bugs are planted in the broker's sources, and the nearest tests must notice them."""
