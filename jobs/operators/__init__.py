"""One operator a file: each turns the change sets of its inputs into its own, and writes its state."""
