"""Sources: what changed in a Delta table between two pinned versions, as a change set."""
