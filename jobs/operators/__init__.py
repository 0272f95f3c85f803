"""Operators, one a file: each turns its inputs' change sets into its own."""
