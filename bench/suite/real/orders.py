"""The questions of an order desk to DuckDB: orders.py ORDERS.

Generated tables in the manner of the benchmark TPC-H (customers, orders, four items an order on average) and six
questions of its kinds: a priced summary, a join of three with the ten dearest, a semi-join, a left join with a
histogram, windows, and texts.  Two threads.  Prints a digest of the answers.
"""

from __future__ import annotations

import sys
import zlib

import duckdb

TABLES = """
CREATE MACRO pick(x, n) AS CAST(hash(x) % n AS INTEGER);
CREATE TABLE customer AS SELECT i AS id, 'Customer ' || pick(i, 1000003) AS name, pick(i * 3, 25) AS nation,
  ['BUILDING', 'MACHINERY', 'FURNITURE', 'HOUSEHOLD', 'AUTOMOBILE'][1 + pick(i * 5, 5)] AS segment
  FROM range({orders} // 10) t(i);
CREATE TABLE orders AS SELECT i AS id, pick(i * 7, ({orders} // 10)) AS customer,
  DATE '1992-01-01' + pick(i * 11, 2400) AS day, 'note ' || hash(i * 13) AS note
  FROM range({orders}) t(i);
CREATE TABLE item AS SELECT o.id AS ordered, n AS line, 1 + pick(o.id * 17 + n, 50) AS amount,
  CAST(100 + pick(o.id * 19 + n, 90000) AS DECIMAL(12, 2)) AS price,
  CAST(pick(o.id * 23 + n, 11) / 100.0 AS DECIMAL(4, 2)) AS discount,
  ['A', 'N', 'R'][1 + pick(o.id + n, 3)] AS flag, o.day + pick(o.id * 29 + n, 120) AS shipped
  FROM orders o, range(7) r(n) WHERE n <= pick(o.id, 7);
"""

QUESTIONS = (
    """SELECT flag, sum(amount), sum(price), sum(price * (1 - discount)), avg(amount), count(*) FROM item
       WHERE shipped <= DATE '1998-06-01' GROUP BY flag ORDER BY flag""",
    """SELECT o.id, sum(i.price * (1 - i.discount)) AS worth, o.day FROM customer c JOIN orders o ON o.customer = c.id
       JOIN item i ON i.ordered = o.id WHERE c.segment = 'BUILDING' AND o.day < DATE '1995-03-15'
       GROUP BY o.id, o.day ORDER BY worth DESC, o.id LIMIT 10""",
    """SELECT month(o.day), count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM item i WHERE i.ordered = o.id
       AND i.shipped > o.day + 90) GROUP BY 1 ORDER BY 1""",
    """SELECT n, count(*) FROM (SELECT c.id, count(o.id) AS n FROM customer c LEFT JOIN orders o ON o.customer = c.id
       AND o.note NOT LIKE '%77%' GROUP BY c.id) GROUP BY n ORDER BY n""",
    """SELECT nation, max(rank), sum(worth) FROM (SELECT c.nation, sum(i.price) AS worth,
       rank() OVER (PARTITION BY c.nation ORDER BY sum(i.price), c.id) AS rank FROM customer c
       JOIN orders o ON o.customer = c.id JOIN item i ON i.ordered = o.id GROUP BY c.nation, c.id)
       GROUP BY nation ORDER BY nation""",
    """SELECT length(string_agg(name || note, ',')), count(DISTINCT substr(note, 6, 4)) FROM orders o
       JOIN customer c ON c.id = o.customer""",
)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    database = duckdb.connect(config={"threads": 2})
    for statement in TABLES.format(orders=int(sys.argv[1])).split(";"):
        if statement.strip():
            database.execute(statement)
    digest = 0
    for question in QUESTIONS:
        digest = zlib.crc32(repr(database.execute(question).fetchall()).encode(), digest)
    print(f"orders.py check={digest:08x}")


if __name__ == "__main__":
    main()
