"""Provenance of a view's row: source rows that make it, and recent changes.

Cui and Widom define the lineage of a row ("Tracing the lineage of view data in a warehousing environment", 2000): for each
source, the rows that contribute to it. It is found backwards through the plan, operator by operator. Sources are read as of
the epoch's pins, and every node below is evaluated by Spark.

* :mod:`.wanted`: some rows, by what tells them apart, and the rows of a frame that are the same.
* :mod:`.view_at`: a view as of an epoch.
* :mod:`.plan_rows`: the rows of a plan's nodes, with what tells them apart.
* :mod:`.lineage`: backwards through the plan.
* :mod:`.changes`: what commits have done to those rows of a source.
* :mod:`.inputs`: the sources and views that make the row, as a tree.
* :mod:`.report`: all of it for one row.
"""
