"""Suites that measure the whole tool: which tampering it reports, and that it does not blame honest rewriting."""
