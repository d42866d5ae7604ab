"""The broker killed again and again under idempotent producers: what was acknowledged is there, in order, once."""
