"""Coordinators of groups, transactions and shares: state machines, and the runtime that keeps them on internal topics."""
