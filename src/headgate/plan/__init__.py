"""Plans: queries as trees of operators, and which operators the queries of different people share."""
