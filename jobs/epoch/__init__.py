"""Epochs: pin sources, compute views, publish, complete, and repair."""
