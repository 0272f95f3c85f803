"""SQL to plan: Catalyst lowers the SQL to a plan without Spark objects."""
