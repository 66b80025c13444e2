"""Base of both suites: small models in several forms, changes to their files, and the judgement."""
