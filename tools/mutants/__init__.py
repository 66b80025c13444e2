"""Mutation testing: whether the tests of a rule notice a change of the rule in one place."""
