"""One module a command; see `spadework.cli`."""
