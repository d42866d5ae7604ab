"""What the clients share: setting up toolchains, and the records and cases in each language."""
