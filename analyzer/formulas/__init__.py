"""Config -> the number of its model's parameters in closed form, term by term; and the terms where an artifact differs.

A closed form is data: `families/*.toml`. `family` reads and checks it; `counting` reads a config and evaluates the
closed form with it.
"""
