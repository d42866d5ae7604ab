"""The replicated metadata log of a KRaft quorum's voters (docs/design/kraft-controller.md)."""
