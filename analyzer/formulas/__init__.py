"""Config -> the count of its model's parameters in closed form, term by term; and which term an artifact differs in.

A closed form is data: `families/*.toml`. `family` reads it into `closed_form`'s nouns, `configs` reads a config, and
`counting` joins the two.
"""
