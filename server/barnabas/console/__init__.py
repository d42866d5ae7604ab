"""A console in the browser: what a cluster is and holds, and what can be done about it.

The rule: it is a client as any other. What it shows and does goes over Kafka's protocol, in the name of the logged-in
user; a broker in the same process adds its own views through one interface, `live.Live`. Nothing here is imported
before the first request.
"""
