-- The demo's SQLite program: a database in memory, so that malloc and not the disk is what counts.
CREATE TABLE sale(id INTEGER PRIMARY KEY, customer TEXT, town INTEGER, amount REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
INSERT INTO sale SELECT i, printf('customer-%d-%x', i * 7919 % 30011, i * 31), i * 31 % 1009, i * 17 % 4001 / 4.0 FROM n;
CREATE INDEX by_customer ON sale(customer);
CREATE INDEX by_town ON sale(town, amount);
SELECT count(*), count(DISTINCT substr(customer, 1, 13)), total(amount) FROM sale;
SELECT town, count(*), total(amount), length(group_concat(customer)) FROM sale
    GROUP BY town HAVING town % 100 = 0 ORDER BY 3 DESC;
UPDATE sale SET customer = upper(customer) WHERE id % 5 = 0;
DELETE FROM sale WHERE town % 50 = 7;
SELECT customer, amount FROM sale ORDER BY amount DESC, customer LIMIT 3;
PRAGMA integrity_check;
