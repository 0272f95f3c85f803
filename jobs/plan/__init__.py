"""Plans: nodes, aggregate kinds, state tables and their ids. No Spark."""
