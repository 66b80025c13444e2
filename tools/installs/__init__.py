"""The package as its users get it: installed from its wheel into clean environments, without what no extra brings."""
