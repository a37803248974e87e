"""`headgate bench sendlog`: the experiments of paper 003, section 7, and what goes beyond them."""
