"""Epochs: pin the sources, bring the views up to date one after the other, publish, complete, and repair."""
