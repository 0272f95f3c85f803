"""SQL to plan: Catalyst analyses and lowers the SQL, the result is a plan that holds no Spark object."""
