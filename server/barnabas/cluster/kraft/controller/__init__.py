"""The active controller of a KRaft quorum: requests in, records and responses out (docs/design/kraft-controller.md)."""
