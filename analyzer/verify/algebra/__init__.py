"""Two programs -> whether they are one computation, over a finite field: no weights, no inputs, no rounding."""
