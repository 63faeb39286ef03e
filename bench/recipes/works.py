"""The works of the recipes: those of the soak's programs, with an amount of work in place of a time, so that time says something."""
import http.client
import pathlib
import random
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "programs" / "soak"))

from databases import MariaDB, PostgreSQL
from documents import Ffmpeg, ImageMagick
from languages import PHP, Go, Java, Node, Ruby
from program import Program
from running import accepts, find, free_port
from served import Serving
from servers import Nginx

TRANSACTIONS = "300"   # of each of pgbench's eight clients
REQUESTS = 100_000     # of redis-benchmark, of each kind
PAGES = 400            # of each of nginx's clients, of every page in turn
CHUNK = 1 << 20        # of an answer that a client reads at once


class FixedPostgreSQL(PostgreSQL):
    """PostgreSQL: initdb, tables, pgbench with 8 clients of 300 transactions, checks, a dump."""

    def bench(self, run, *options):
        words = list(options)
        if "-T" in words:
            at = words.index("-T")
            words[at:at + 2] = ["-t", TRANSACTIONS]
        return super().bench(run, *words)


class FixedMariaDB(MariaDB):
    """MariaDB: a new data folder, tables, 2000 queries over 8 connections, questions, CHECK TABLE."""


class FixedNginx(Nginx):
    """nginx: 4 workers serve 400 files each, plain, gzipped and proxied, to 4 clients."""

    def load(self, run):
        run.drop_privileges()
        port, root = free_port(), run.directory / "tmp"
        for size in set(self.PAGES.values()):
            (root / str(size)).write_bytes(random.Random(size).randbytes(size // 2).hex().encode())
        configuration = run.directory / "nginx.conf"
        configuration.write_text(self.CONFIGURATION.format(port=port, root=root), encoding="utf-8")
        server = run.start([find("nginx"), "-p", run.directory, "-e", "stderr", "-c", configuration])
        server.wait_until(lambda: accepts(port), "listen")
        totals = [0] * 4
        clients = [threading.Thread(target=self.ask, args=(port, totals, n)) for n in range(len(totals))]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        server.stop()
        return totals

    def ask(self, port, totals, number):
        """One connection; what it does beside the server is little, so that the time is the server's."""
        pages, room = list(self.PAGES), bytearray(CHUNK)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for n in range(PAGES):
            connection.request("GET", pages[n % len(pages)], headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            while read := answer.readinto(room):
                totals[number] += read
        connection.close()


class Redis(Program):
    """Redis: 100,000 each of SET, GET, LPUSH, SADD, HSET and ZADD over 50 connections."""

    name = "redis"
    packages = {"redis-server": "redis-server", "redis-benchmark": "redis-tools", "redis-cli": "redis-tools"}
    serving = (Serving("redis*", 10_000),)

    def load(self, run):
        port = free_port()
        server = run.start([find("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        server.wait_until(lambda: accepts(port), "listen")
        run.client([find("redis-benchmark"), "-p", port, "-q", "-n", REQUESTS, "-r", REQUESTS, "-d", "100",
                    "-t", "set,get,lpush,sadd,hset,zadd"])
        size = run.client([find("redis-cli"), "-p", port, "LLEN", "mylist"])
        server.stop()
        return size


WORKS = {"nginx": FixedNginx, "postgresql": FixedPostgreSQL, "mariadb": FixedMariaDB, "redis": Redis, "node": Node, "ruby": Ruby,
         "php": PHP, "ffmpeg": Ffmpeg, "imagemagick": ImageMagick, "go": Go, "java": Java}
