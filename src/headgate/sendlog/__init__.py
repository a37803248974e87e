"""SeNDlog: rules in the contexts of principals, signed statements between them, and proofs (paper 003)."""
