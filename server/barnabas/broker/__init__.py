"""The Trio shell: sockets, tasks, timers and the wiring of all pure parts into one running broker."""
