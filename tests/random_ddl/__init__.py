"""Random declarations, changes and damage: what a warehouse goes through in years, in minutes."""
