"""Scenarios of measurements, one module each."""
