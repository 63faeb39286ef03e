#!/usr/bin/env python3
# test: timeout=600 cost=60
"""SQLite inserts, indexes and queries a million rows, and its database is intact."""

from support import check, main, need, tail

ROWS = 1_000_000

# A large page cache makes SQLite ask malloc for each page, instead of going round in 2 MB. Rows
# get their values from arithmetic on the row number, so that every run makes the same database.
SCRIPT = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -200000;
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, town INTEGER, score REAL);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
INSERT INTO person SELECT i, printf('name-%d-%x', i * 7919 % {ROWS}, i), i * 31 % 1009, i * 0.5 FROM n;
COMMIT;
CREATE INDEX by_name ON person(name);
CREATE INDEX by_town ON person(town, score);
SELECT count(*), sum(id), min(name), max(name), sum(length(name)), total(score) FROM person;
SELECT town, count(*), group_concat(substr(name, 6, 4)) FROM person WHERE id % 997 = 0
    GROUP BY town ORDER BY count(*) DESC, town LIMIT 20;
SELECT count(*), total(b.score) FROM person AS a CROSS JOIN person AS b INDEXED BY by_name
    ON b.name = printf('name-%d-%x', a.id * 7919 % {ROWS}, a.id) WHERE a.id <= 100000;
UPDATE person SET name = upper(name) || '/' || town WHERE id % 10 = 3;
DELETE FROM person WHERE town = 17;
SELECT name FROM person WHERE town = 18 ORDER BY name LIMIT 5;
SELECT count(*), count(DISTINCT name) FROM person;
PRAGMA integrity_check;
"""


def test(setup):
    sqlite = need("sqlite3", "sqlite3")

    def workload(allocator, directory):
        # Without the lookaside buffer SQLite's small blocks come from malloc as well.
        output = allocator.run([sqlite, "-batch", "-lookaside", "0", "0", "people.db"],
                               cwd=directory, input=SCRIPT)
        check(output.endswith("ok\n"), f"PRAGMA integrity_check says:\n{tail(output)}")
        return output

    setup.require_bindings([sqlite, ":memory:", "SELECT 1;"])
    setup.compare(workload, refilled=5_000, calls=2_000_000)


main(test)
