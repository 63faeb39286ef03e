-- Tables in memory: inserts, an index, joins, groups, text, deletes.  :rows is how many; set it before.
PRAGMA cache_size = -200000;
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, town INTEGER, note TEXT);
CREATE TABLE town(id INTEGER PRIMARY KEY, name TEXT);
BEGIN;
INSERT INTO town
  WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 499) SELECT i, 'town ' || i FROM n;
INSERT INTO person
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
  SELECT i, printf('%08x', i * 2654435761 % 4294967296), i * 7919 % 500, hex(zeroblob(i % 90)) FROM n;
COMMIT;
CREATE INDEX person_name ON person(name);
SELECT count(*), sum(length(note)), min(name), max(name) FROM person;
SELECT t.name, count(*), max(p.name) FROM person p JOIN town t ON t.id = p.town GROUP BY t.id ORDER BY 3 LIMIT 5;
SELECT count(*) FROM (SELECT DISTINCT substr(name, 1, 5) FROM person);
SELECT length(group_concat(name, ';')) FROM person WHERE town < 50;
SELECT count(*) FROM person a JOIN person b ON b.name = printf('%08x', (a.id + 1) * 2654435761 % 4294967296);
UPDATE person SET note = note || name WHERE id % 3 = 0;
DELETE FROM person WHERE id % 5 = 0;
SELECT count(*), sum(length(note)) FROM person;
SELECT json_extract(json_object('name', name, 'town', town), '$.name') FROM person ORDER BY name DESC LIMIT 3;
SELECT length(json_group_array(json_object('id', id, 'name', name))) FROM person;
