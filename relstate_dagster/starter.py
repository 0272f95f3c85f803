"""Files of a new project: one source, one view and a test of it."""

from __future__ import annotations

from typing import Final

#: The text of each file, by its path in the project.
STARTER: Final = {
    "sources.sql": """\
-- An existing Delta table needs no declaration if it lies in the warehouse. For one that lies elsewhere give its folder,
-- and its key if it has one. With its change data feed on, less is read.
CREATE TABLE IF NOT EXISTS orders (
  order_id BIGINT NOT NULL,
  customer STRING,
  price DECIMAL(12, 2),
  PRIMARY KEY (order_id)
) COMMENT 'Orders, managed in the warehouse; add LOCATION ''/data/orders'' to read one of your own';
""",
    "views/sales_by_customer.sql": """\
CREATE MATERIALIZED VIEW sales_by_customer
COMMENT 'What each customer bought'
TBLPROPERTIES ('refresh.policy' = 'auto', 'dagster.group' = 'sales')
AS
SELECT customer, count(*) AS orders, sum(price) AS sales
FROM orders
GROUP BY customer;
""",
    "views/sales_by_customer.test.yaml": """\
# relstate test runs these: rows of what the view reads, the rows that it then has, and changes in steps.
view: sales_by_customer
tests:
  - name: sales follow the orders
    given:
      orders:
        - {order_id: 1, customer: ann, price: 9.50}
        - {order_id: 2, customer: bob, price: 20}
    expect:
      - {customer: ann, orders: 1, sales: 9.50}
      - {customer: bob, orders: 1, sales: 20}
    steps:
      - update: {orders: [{order_id: 1, price: 10}]}
        delete: {orders: [{order_id: 2}]}
        expect:
          - {customer: ann, orders: 1, sales: 10}
""",
}
