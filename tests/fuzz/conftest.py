"""Nothing here is a test: `make fuzz` runs it."""

collect_ignore_glob = ["*.py"]
