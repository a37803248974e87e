"""Plans: what a query means as a tree of operators, and what trees of different people share."""
