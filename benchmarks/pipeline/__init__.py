"""A brokerage's warehouse: raw files, and a chain of views over them."""
