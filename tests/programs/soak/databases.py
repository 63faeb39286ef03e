"""Database servers: PostgreSQL with a process for each client, MariaDB with a thread."""

import re
import time

from program import Program
from running import check, find
from served import Serving

ROWS = 20_000


class PostgreSQL(Program):
    """PostgreSQL: initdb, pgbench with 8 clients, its sums, amcheck, a dump, a clean end."""

    name = "postgresql"
    packages = {"initdb": "postgresql", "postgres": "postgresql", "pgbench": "postgresql", "psql": "postgresql-client",
                "pg_dump": "postgresql-client"}
    serving = (Serving("initdb", 100), Serving("postgres", 50, processes=9), Serving("pgbench", 500),
               Serving("pg_dump", 500))
    lasting = True
    BALANCES = ("SELECT sum(abalance) FROM pgbench_accounts", "SELECT sum(tbalance) FROM pgbench_tellers",
                "SELECT sum(bbalance) FROM pgbench_branches", "SELECT sum(delta) FROM pgbench_history")
    # A table whose order and contents are those of every run, with values that are stored apart from their rows.
    THINGS = f"""CREATE TABLE things AS SELECT i AS id, md5(i::text) AS name, repeat(md5((i * 7)::text), i % 300) AS body,
        ARRAY[i, i * 2] AS pair FROM generate_series(1, {ROWS}) AS i;
        CREATE UNIQUE INDEX ON things(id); CREATE INDEX ON things(name); CREATE INDEX ON things USING gin(pair);
        CREATE EXTENSION amcheck;"""

    def load(self, run):
        run.drop_privileges()
        run.command([find("initdb"), "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"])
        server = run.start([find("postgres"), "-D", "data", "-F", "-k", run.directory, "-c", "listen_addresses="])
        server.wait_until(lambda: (run.directory / ".s.PGSQL.5432").exists() and self.answers(run), "accept connections")
        self.bench(run, "-i", "-s", "2")
        self.ask(run, self.THINGS)
        self.bench(run, "-n", "-c", "8", "-j", "2", "-t", "100", "--random-seed=1")
        # Additions commute: the balances are the same, whichever client came first.
        accounts = self.ask(run, "SELECT md5(string_agg(aid || ' ' || abalance, ',' ORDER BY aid)) FROM pgbench_accounts")
        report = self.bench(run, "-n", "-c", "8", "-j", "2", "-T", str(max(1, round(run.seconds))))
        check("number of failed transactions: 0 " in report, f"transactions have failed:\n{report}")
        sums = [self.ask(run, question) for question in self.BALANCES]
        check(len(set(sums)) == 1, f"the balances disagree: {sums}")
        self.ask(run, "SELECT bt_index_check(c.oid, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
                      " JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'btree'")
        dump = run.command([find("pg_dump"), *self.where(run), "-t", "things", "postgres"])
        server.stop(expect=(0,))
        return accounts, re.sub(r"(?m)^\\(un)?restrict .*$|^-- Dumped .*$", "", dump)

    def where(self, run):
        return "-h", run.directory, "-U", "postgres"

    def answers(self, run):
        return run.client(["psql", *self.where(run), "-c", "SELECT 1", "postgres"], expect=(0, 2)) != ""

    def ask(self, run, question):
        return run.client(["psql", *self.where(run), "-v", "ON_ERROR_STOP=1", "-qAt", "-c", question, "postgres"])

    def bench(self, run, *options):
        return run.command([find("pgbench"), *self.where(run), *options, "postgres"], limit=run.seconds + 120)


class MariaDB(Program):
    """MariaDB: a new data folder, 8 connections that insert, update and ask, CHECK TABLE, a clean end."""

    name = "mariadb"
    packages = {"mariadbd": "mariadb-server-core", "mariadb-install-db": "mariadb-server-core",
                "mariadb": "mariadb-client-core", "mariadb-slap": "mariadb-client"}
    serving = (Serving("mariadbd", 4_000, processes=2),)
    lasting = True
    TABLES = f"""CREATE DATABASE work; USE work;
        CREATE TABLE person(id INT PRIMARY KEY, name VARCHAR(80), body TEXT, score DOUBLE, KEY(name)) ENGINE=InnoDB;
        INSERT INTO person SELECT seq, CONCAT('name-', seq * 7919 % {ROWS}), REPEAT(MD5(seq), seq % 40), seq * 0.5
            FROM seq_1_to_{ROWS};
        CREATE TABLE copy ENGINE=Aria SELECT * FROM person WHERE id % 3 = 0;
        UPDATE person SET name = CONCAT(UPPER(name), '/', id) WHERE id % 10 = 3;
        DELETE FROM person WHERE id % 17 = 0;"""
    QUESTIONS = """SELECT COUNT(*), SUM(id), SUM(LENGTH(body)), SUM(score) FROM person;
        SELECT id % 100 AS part, COUNT(DISTINCT name), MD5(GROUP_CONCAT(name ORDER BY id)) FROM person GROUP BY part;
        SELECT a.name, JSON_OBJECT('id', b.id, 'score', b.score) FROM person a JOIN copy b ON a.id = b.id
            ORDER BY a.name DESC LIMIT 50;
        CHECKSUM TABLE person, copy; CHECK TABLE person, copy EXTENDED;"""

    def load(self, run):
        run.drop_privileges()
        socket = run.directory / "socket"
        data = f"--datadir={run.directory / 'data'}"
        run.command(["mariadb-install-db", "--no-defaults", data, "--auth-root-authentication-method=normal",
                     "--skip-test-db"])
        server = run.start([find("mariadbd"), "--no-defaults", data, f"--socket={socket}", "--skip-networking",
                            "--innodb-buffer-pool-size=64M", f"--pid-file={run.directory / 'pid'}"])
        server.wait_until(socket.exists, "make its socket")
        self.ask(run, socket, self.TABLES)
        before = self.ask(run, socket, "USE work; " + self.QUESTIONS)
        end = time.monotonic() + run.seconds
        while True:
            self.slap(run, socket)
            if time.monotonic() > end:
                break
        after = self.ask(run, socket, "USE work; " + self.QUESTIONS)
        check(before == after, "the tables have changed beside the load")
        check(after.count("status\tOK") == 2, f"CHECK TABLE says:\n{after[-300:]}")
        server.stop()
        return after

    def ask(self, run, socket, text):
        return run.client(["mariadb", "--no-defaults", f"--socket={socket}", "-uroot", "--batch"], input=text)

    def slap(self, run, socket):
        run.client(["mariadb-slap", "--no-defaults", f"--socket={socket}", "-uroot", "--concurrency=8", "--iterations=1",
                    "--auto-generate-sql", "--auto-generate-sql-load-type=mixed", "--number-of-queries=2000",
                    "--number-char-cols=5", "--number-int-cols=5", "--detach=100"])
