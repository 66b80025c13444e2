"""Mutation testing: what the tests of a rule notice when the rule is changed in one place."""
