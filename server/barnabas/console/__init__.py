"""A console in the browser: what a cluster is and holds, and what can be done about it.

The rule: it is a client as any other. What it shows and does goes over Kafka's protocol, in the name of who has logged in;
a broker in the same process adds what only it knows through one interface, `live.Live`. Nothing here is imported before
somebody asks for the console.
"""
