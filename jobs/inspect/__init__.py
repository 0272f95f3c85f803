"""Inspection of views: verification, checks, differences, provenance, and rows."""
