"""Tools around a broker that tests use: faults, a clock, recorded requests, an API over HTTP."""
