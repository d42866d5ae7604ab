"""What stands around a broker that tests others: faults, a clock, recorded requests, an API over HTTP."""
