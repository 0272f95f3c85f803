"""Warm-up of a server: epochs of small views, before the first request.

The JVM then has loaded and compiled what epochs run.

They are in a warehouse of their own, in the server's own folder, and end at the first request.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import Warehouse
from relstate_dagster.jobs.engine.spark_connect import new_session
from relstate_dagster.server.work import SQL, Cancelled, Job, Works

_log = logging.getLogger("relstate.server")

#: More give little: docs/performance.md.
_EPOCHS: Final = 4
_CANCEL_AGAIN_SECONDS: Final = 0.1
#: Filters, joins, aggregates with extremes and distinct values, a window, a top-n, and views over views. No table of anybody's
#: has these names.
_VIEWS: Final = """
CREATE TABLE warming_orders (id INT, customer INT, amount DECIMAL(10,2), day DATE, note STRING, PRIMARY KEY (id));
CREATE TABLE warming_customers (customer INT, name STRING, segment STRING, PRIMARY KEY (customer));
CREATE TABLE warming_visits (customer INT, at TIMESTAMP, seconds INT);
INSERT INTO warming_customers SELECT id, concat('customer ', id), concat('segment ', id % 3) FROM range(8);
INSERT INTO warming_orders SELECT id, id % 10, id, DATE '2026-01-01' + CAST(id % 30 AS INT), concat('note ', id) FROM range(60);
INSERT INTO warming_visits SELECT id % 9, TIMESTAMP '2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, id), id FROM range(60);
CREATE MATERIALIZED VIEW warming_details AS
  SELECT id, customer, name, segment, amount, day, upper(note) AS note
  FROM warming_orders LEFT JOIN warming_customers USING (customer);
CREATE MATERIALIZED VIEW warming_segments AS
  SELECT segment, day, count(*) AS n, sum(amount) AS total, avg(amount) AS average, max(amount) AS most, min(id) AS first_id
  FROM warming_orders JOIN warming_customers USING (customer) WHERE amount > 1 GROUP BY segment, day;
CREATE MATERIALIZED VIEW warming_distinct AS
  SELECT customer, count(DISTINCT date_trunc('hour', at)) AS hours, sum(seconds) AS seconds, max_by(at, seconds) AS longest
  FROM warming_visits GROUP BY customer;
CREATE MATERIALIZED VIEW warming_absent AS
  SELECT customer, name FROM warming_customers c
  WHERE NOT EXISTS (SELECT 1 FROM warming_visits v WHERE v.customer = c.customer);
CREATE MATERIALIZED VIEW warming_both AS
  SELECT customer FROM warming_orders UNION ALL SELECT customer FROM warming_visits;
CREATE MATERIALIZED VIEW warming_ranked AS
  SELECT id, customer, rank() OVER (PARTITION BY customer ORDER BY amount DESC) AS place FROM warming_orders;
CREATE MATERIALIZED VIEW warming_best AS
  SELECT segment, day, total FROM warming_segments ORDER BY total DESC, segment, day LIMIT 5;
CREATE MATERIALIZED VIEW warming_quiet AS
  SELECT segment, count(*) AS days FROM warming_segments WHERE n < 3 GROUP BY segment HAVING count(*) > 1;
REFRESH;
"""


class WarmUp:
    """Warm-up epochs in their own thread.

    Whatever fails in them, the server goes on.

    Parameters
    ----------
    spark : the server's session; they run in others of the same Spark.
    folder : where their warehouse is made, and removed.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._job = Job(spark, lambda _said: None, lambda _said: None)
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether it is at work, or about to end."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end at its next step, without waiting."""
        if self._thread.is_alive() and not self._job.is_cancelled:
            self._cancel()
            threading.Thread(target=self._keep_cancelling, daemon=True).start()

    def _keep_cancelling(self) -> None:
        while self._thread.is_alive():
            self._cancel()
            self._thread.join(_CANCEL_AGAIN_SECONDS)

    def _cancel(self) -> None:
        with suppress(Exception):
            self._job.cancel()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._job.begin("warming up")
            works = Works(new_session(self._spark), Warehouse(str(self._folder)))
            for text in (_VIEWS, *_epochs(_EPOCHS)):
                arguments = {"text": text, "path": None, "as_json": False, "keep_going": False}
                for message in works.do(self._job, {"do": SQL, "arguments": arguments}):
                    self._job.check()
                    if "failed" in message:
                        _log.info("warming up has failed: %s", message["message"])
                        return
            _log.info("warmed up in %.1f s", time.monotonic() - began)
        except Exception as error:
            if isinstance(error, Cancelled) or self._job.is_cancelled:
                _log.info("warmed up for %.1f s, until a request", time.monotonic() - began)
            else:
                _log.info("warming up has failed", exc_info=error)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def _epochs(number: int) -> Iterator[str]:
    for epoch in range(number):
        new = 100 + 3 * epoch
        yield f"""
INSERT INTO warming_orders SELECT {new} + id, id, id + 0.5, DATE '2026-02-01', 'new' FROM range(3);
INSERT INTO warming_visits VALUES ({epoch}, TIMESTAMP '2026-02-01 00:00:00', {new});
UPDATE warming_orders SET amount = amount + 1, note = 'changed' WHERE id % 20 = {epoch % 20};
DELETE FROM warming_orders WHERE id = {epoch};
UPDATE warming_customers SET segment = 'segment {epoch % 4}' WHERE customer = {epoch % 8};
REFRESH;
"""
