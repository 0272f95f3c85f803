"""The Spark side: planner, operators, sources, epoch runner and publishing. Knows nothing of Dagster."""
