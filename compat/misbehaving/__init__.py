"""Stock clients against a broker that fails on purpose."""
