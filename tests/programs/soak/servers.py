"""Servers of the network: nginx with HUP under load, Varnish, memcached, named with reloads, sshd with its sandbox."""

import asyncio
import gzip
import hashlib
import http.server
import os
import pathlib
import pwd
import random
import re
import signal
import sys
import threading
import time

from program import Program
from running import Failure, Skip, accepts, check, find, free_port
from served import Serving, descendants, process_table

CLIENTS = 32


async def request(port, path):
    """One GET on a connection of its own; the body of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
                     f"Accept-Encoding: {'gzip' if 'zip' in path else 'identity'}\r\n\r\n".encode())
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        check(head.startswith(b"HTTP/1.1 200 "), f"GET {path}: {head[:80]!r}")
        return unchunked(body) if b"chunked" in head else body
    finally:
        writer.close()


def unchunked(body):
    """A body that came in pieces, each with its length before it."""
    whole = b""
    while True:
        length, _, body = body.partition(b"\r\n")
        if int(length, 16) == 0:
            return whole
        whole, body = whole + body[:int(length, 16)], body[int(length, 16) + 2:]


class Nginx(Program):
    """nginx: 4 workers, files, gzip and proxying, while HUP replaces the workers; no request fails."""

    name = "nginx"
    packages = {"nginx": "nginx"}
    serving = (Serving("nginx", 50, processes=5),)
    lasting = True
    PAGES = {f"/{kind}/{size}": size for kind in ("file", "zip", "proxy", "proxy-zip") for size in (10, 3000, 70_000, 900_000)}
    CONFIGURATION = """daemon off; worker_processes 4; pid nginx.pid; error_log stderr warn;
        events {{ worker_connections 256; }}
        http {{
          access_log off; gzip_min_length 100; gzip_types *; gzip_comp_level 1;
          client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fast; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
          server {{
            listen 127.0.0.1:{port}; root {root};
            location /file/ {{ rewrite ^/file/(.*) /$1 break; }}
            location /zip/ {{ gzip on; rewrite ^/zip/(.*) /$1 break; }}
            location /proxy/ {{ proxy_pass http://127.0.0.1:{port}/file/; }}
            location /proxy-zip/ {{ gzip on; proxy_pass http://127.0.0.1:{port}/file/; }}
          }}
        }}"""

    def load(self, run):
        run.drop_privileges()
        port, root = free_port(), run.directory / "tmp"
        for size in set(self.PAGES.values()):
            (root / str(size)).write_bytes(random.Random(size).randbytes(size // 2).hex().encode())
        configuration = run.directory / "nginx.conf"
        configuration.write_text(self.CONFIGURATION.format(port=port, root=root))
        server = run.start([find("nginx"), "-p", run.directory, "-e", "stderr", "-c", configuration])
        server.wait_until(lambda: accepts(port), "listen")
        answers, requests, reloads = asyncio.run(self.ask(port, server, run.seconds))
        server.stop(signal.SIGQUIT)
        print(f"  {requests} requests, {reloads} times HUP, all answered")
        check(reloads > 2, "the workers were hardly ever replaced")
        return answers

    async def ask(self, port, server, seconds):
        """Many clients until the time has passed; {path: what every request has given}, and how many there were."""
        answers, end, counts = {}, time.monotonic() + seconds, [0, 0]

        async def client(number):
            generator = random.Random(number)
            paths = list(self.PAGES)
            while paths or time.monotonic() < end:
                path = paths.pop() if paths else generator.choice(list(self.PAGES))
                body = hashlib.sha256(await request(port, path)).hexdigest()
                check(answers.setdefault(path, body) == body, f"GET {path} gave two different answers")
                counts[0] += 1

        async def reload():
            while True:
                await asyncio.sleep(0.3)
                server.process.send_signal(signal.SIGHUP)
                counts[1] += 1

        reloading = asyncio.create_task(reload())
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        reloading.cancel()
        return (answers, *counts)


class Origin(http.server.BaseHTTPRequestHandler):
    """Behind Varnish: a body whose size and bytes follow from its path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = random.Random(self.path).randbytes(int(self.path.rpartition("/")[2]) // 2).hex().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Varnish(Program):
    """Varnish: 32 clients, hits, misses, expiry and eviction from 16 MB, gzip, bans and new configurations."""

    name = "varnish"
    packages = {"varnishd": "varnish", "varnishadm": "varnish", "gcc": "gcc"}
    serving = (Serving("varnishd", 5_000), Serving("varnishd", 300, processes=2))
    lasting = True
    PATHS = [f"/{kind}/{number}/{size}" for kind in ("plain", "zip") for number in range(12)
             for size in (10, 3000, 70_000, 900_000)]
    CONFIGURATION = """vcl 4.1;
        backend origin {{ .host = "127.0.0.1"; .port = "{port}"; }}
        sub vcl_recv {{ if (req.url ~ "pass") {{ return (pass); }} }}
        sub vcl_backend_response {{ set beresp.do_gzip = bereq.url ~ "^/zip/"; set beresp.grace = 0s; }}
        sub vcl_deliver {{ set resp.http.X-Hits = obj.hits; }}"""

    def load(self, run):
        run.drop_privileges()
        origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        try:
            return self.serve(run, origin.server_address[1])
        finally:
            origin.shutdown()
            origin.server_close()

    def serve(self, run, origin):
        port, configuration, folder = free_port(), run.directory / "it.vcl", run.directory / "tmp" / "varnish"
        configuration.write_text(self.CONFIGURATION.format(port=origin))
        server = run.start([find("varnishd"), "-F", "-j", "none", "-n", folder, "-a", f"127.0.0.1:{port}", "-f", configuration,
                            "-s", "malloc,16M", "-p", "thread_pools=2", "-p", "thread_pool_min=20"])
        server.wait_until(lambda: accepts(port), "listen")
        answers, requests, changes = asyncio.run(self.ask(port, run, configuration, folder))
        server.stop(signal.SIGTERM)
        print(f"  {requests} requests, {changes} bans and new configurations")
        check(changes > 2, "there was hardly ever a new configuration")
        check("died" not in server.log.read_text(), f"the worker has died:\n{server.said()}")
        return answers

    async def ask(self, port, run, configuration, folder):
        """Many clients until the time has passed; {path: the digest of what every request has given}, and how many there were."""
        answers, end, counts = {}, time.monotonic() + run.seconds, [0, 0]

        async def client(number):
            generator, paths = random.Random(number), list(self.PATHS)
            while paths or time.monotonic() < end:
                path = paths.pop(generator.randrange(len(paths))) if paths else generator.choice(self.PATHS)
                body = await request(port, path)
                body = hashlib.sha256(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).hexdigest()
                check(answers.setdefault(path, body) == body, f"GET {path} gave two different answers")
                counts[0] += 1

        def administer():
            while counts[1] == 0 or time.monotonic() < end:
                name = f"new{counts[1]}"
                for words in (["vcl.load", name, configuration], ["vcl.use", name], ["ban", "req.url ~ /3000$"]):
                    run.client(["varnishadm", "-n", folder, *words])
                    counts[1] += 1

        await asyncio.gather(asyncio.to_thread(administer), *(client(number) for number in range(CLIENTS)))
        return (answers, *counts)


class Named(Program):
    """named: 8 clients ask for all kinds of records by UDP and TCP, zones are transferred, updated and reloaded."""

    name = "named"
    packages = {"named": "bind9", "dig": "bind9-dnsutils", "nsupdate": "bind9-dnsutils"}
    serving = (Serving("named", 40_000),)
    lasting = True
    RECORDS = 4000
    CONFIGURATION = """options {{ directory "{folder}"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no;
          pid-file none; session-keyfile none; dnssec-validation no; allow-transfer {{ any; }}; }};
        controls {{ }};
        zone "example.test" {{ type primary; file "{folder}/zone"; }};
        zone "dynamic.test" {{ type primary; file "{folder}/dynamic"; allow-update {{ any; }}; }};"""
    HEAD = "$TTL 60\n@ IN SOA ns.example.test. it.example.test. 1 60 60 600 60\n@ NS ns.example.test.\n"

    def load(self, run):
        run.drop_privileges()
        port, folder = free_port(), run.directory / "tmp"
        lines = [f"h{i} A 10.1.{i // 250}.{i % 250 + 1}\nh{i} TXT \"{'text ' * (i % 40)}{i}\"\na{i} CNAME h{i}\n"
                 for i in range(self.RECORDS)]
        (folder / "zone").write_text(self.HEAD + "ns A 127.0.0.1\n" + "".join(lines))
        (folder / "dynamic").write_text(self.HEAD)
        (run.directory / "named.conf").write_text(self.CONFIGURATION.format(folder=folder, port=port))
        if run.user:
            os.chown(folder / "dynamic", run.user.pw_uid, run.user.pw_gid)
        server = run.start([find("named"), "-g", "-n", "4", "-c", run.directory / "named.conf"])
        server.wait_until(lambda: re.search(r"\brunning$", server.log.read_text(), re.M), "load its zones")
        answers = asyncio.run(self.clients(run, port, server))
        server.stop(signal.SIGTERM)
        return answers

    async def clients(self, run, port, server):
        end = time.monotonic() + run.seconds
        return await asyncio.gather(*(asyncio.to_thread(self.client, run, port, number, end) for number in range(8)),
                                     asyncio.to_thread(self.administer, run, port, server, end))

    def dig(self, run, port, *words):
        """Asks from another address: on the server's, dig shares the server's port when it happens to choose it."""
        said = run.client(["dig", "@127.0.0.1", "-b", "127.0.0.2", "-p", str(port), "+time=3", "+tries=10", *words])
        return "".join(line for line in said.splitlines(keepends=True) if not line.startswith(";"))

    def client(self, run, port, number, end):
        """Rounds of the same few thousand questions; what the last has given, which each must give."""
        generator, first = random.Random(number), None
        kinds = [(f"{kind}{generator.randrange(self.RECORDS + 50)}.example.test", record)
                 for _ in range(300) for kind, record in (("h", "A"), ("h", "TXT"), ("a", "A"), ("none", "MX"))]
        batch = run.directory / f"questions{number}"
        batch.write_text("".join(f"{name} {record} +noall +answer +authority {'+tcp' if i % 7 == 0 else ''}\n"
                                 for i, (name, record) in enumerate(kinds)))
        while first is None or time.monotonic() < end:
            said = hashlib.sha256(self.dig(run, port, "-f", batch).encode()).hexdigest()
            check(first in (None, said), "the same questions have two answers")
            first = said
        return first

    def administer(self, run, port, server, end):
        """Transfers, reloads, and updates that add and take away the same; what is there at the end."""
        rounds = 0
        while rounds < 2 or time.monotonic() < end:
            server.process.send_signal(signal.SIGHUP)
            changes = [f"update {'add' if rounds % 2 == 0 else 'delete'} d{i}.dynamic.test 60 A 10.2.3.{i % 250}\n" for i in range(400)]
            run.client(["nsupdate"], input=f"server 127.0.0.1 {port}\nzone dynamic.test\n{''.join(changes)}send\n")
            there = self.dig(run, port, "+noall", "+answer", "dynamic.test", "AXFR").count(" A ") or \
                len(self.dig(run, port, "+noall", "+answer", "dynamic.test", "AXFR").splitlines())
            check(there > 400 if rounds % 2 == 0 else there < 10, f"{there} records are there after an update")
            rounds += 1
        return hashlib.sha256(self.dig(run, port, "+noall", "+answer", "example.test", "AXFR").encode()).hexdigest()


class Memcached(Program):
    """memcached: 32 connections store, append, count and delete; every value is verified."""

    name = "memcached"
    packages = {"memcached": "memcached"}
    serving = (Serving("memcached", 300),)
    lasting = True
    KEYS = 400

    def load(self, run):
        run.drop_privileges()
        socket = run.directory / "socket"
        server = run.start([find("memcached"), "-s", socket, "-t", "4", "-m", "1024", "-M", "-I", "2m"])
        server.wait_until(socket.exists, "make its socket")
        kept = asyncio.run(self.clients(socket, run.seconds))
        server.stop(signal.SIGTERM)
        return kept

    async def clients(self, socket, seconds):
        end = time.monotonic() + seconds
        return await asyncio.gather(*(self.client(socket, number, end) for number in range(CLIENTS)))

    async def client(self, socket, number, end):
        """Rounds of the same commands with the same end, on keys of its own; what the last round leaves."""
        reader, writer = await asyncio.open_unix_connection(socket, limit=1 << 22)

        async def command(text, data=None):
            writer.write(text.encode() + b"\r\n" + (data + b"\r\n" if data is not None else b""))
            return (await reader.readline()).rstrip()

        async def get(key):
            head = await command(f"get {key}")
            if head == b"END":
                return None
            data = await reader.readexactly(int(head.split()[3]) + 2)
            check(await reader.readline() == b"END\r\n", f"get {key} has no end")
            return data[:-2]

        digest = hashlib.sha256()
        while True:
            model = await self.round(random.Random(number), number, command, get)
            if time.monotonic() > end:
                break
        for key in sorted(model):
            digest.update(f"{key}={model[key]!r}".encode())
        writer.close()
        return digest.hexdigest()

    async def round(self, generator, number, command, get):
        """Some hundred commands, checked against a dictionary that gets the same."""
        model = {}
        await command(f"set count-{number} 0 0 1", b"0")
        for step in range(self.KEYS):
            key = f"key-{number}-{generator.randrange(self.KEYS // 4)}"
            size = generator.choice((10, 300, 5000, 60_000, 1_000_000 if step % 100 == 0 else 100))
            value = generator.randbytes(16).hex().encode() * (size // 32 + 1)
            kind = generator.randrange(4)
            if kind < 2:
                check(await command(f"set {key} 0 0 {len(value)}", value) == b"STORED", f"{key} isn't stored")
                model[key] = value
            elif kind == 2 and key in model and len(model[key]) < 500_000:
                check(await command(f"append {key} 0 0 4", b"more") == b"STORED", f"{key} isn't appended to")
                model[key] += b"more"
            elif kind == 3:
                said = await command(f"delete {key}")
                check(said == (b"DELETED" if model.pop(key, None) is not None else b"NOT_FOUND"), f"delete {key}: {said!r}")
            check(await get(key) == model.get(key), f"{key} has another value than was stored")
            check(int(await command(f"incr count-{number} 1")) == step + 1, "a count is wrong")
        for key, value in model.items():
            check(await get(key) == value, f"{key} has another value than was stored")
            await command(f"delete {key}")
        return model


def is_filtered(pid):
    """Whether a seccomp filter judges the process's system calls; no, if the process has ended."""
    try:
        return "Seccomp:\t2" in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Sshd(Program):
    """sshd: logins with big output and input, a slow one, and its sandboxed process before the login.

    Its statistics at exit are not asked for: the sandbox forbids opening files, so that what the sandboxed process and
    its parents were given is read from outside. As root it needs /run/sshd, which is removed again when it is made.
    """

    name = "sshd"
    packages = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
    serving = (Serving("sshd*", 100, processes=3), Serving("ssh", 100))
    BYTES = 8_000_000

    def load(self, run):
        shell = pwd.getpwuid(os.geteuid()).pw_shell
        if pathlib.Path(shell).name in ("nologin", "false"):
            raise Skip(f"this user may not log in: its shell is {shell}")
        separation = pathlib.Path("/run/sshd")
        made = os.geteuid() == 0 and not separation.exists()
        if made:
            separation.mkdir(mode=0o755)
        try:
            return self.serve(run)
        finally:
            if made:
                separation.rmdir()

    def serve(self, run):
        port, folder = free_port(), run.directory
        for key in ("host", "user"):
            run.command(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key])
        (folder / "config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
            f"StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nPermitRootLogin prohibit-password\n"
            f"PermitUserEnvironment no\nLogLevel VERBOSE\n")
        server = run.start([find("sshd"), "-D", "-e", "-f", folder / "config"], extra={"HAKMEM_STATS": "0"})
        server.wait_until(lambda: accepts(port), "listen")
        asyncio.run(self.wait_for_sandbox(port, server))
        results = [self.login(run, port, command) for command in
                   ("echo $((6 * 7))", f"head -c {self.BYTES} /dev/zero | tr '\\0' 'x'", "seq 1 300000", "exit 0")]
        results.append(self.login(run, port, "sha256sum", input="line of a file\n" * 300_000))
        slowly = ["-o", f"ProxyCommand={sys.executable} {run.load('slow.py')} {port} 0.4"]
        results.append(self.login(run, port, "echo slowly", options=slowly))
        server.stop(expect=(0, 255))
        check("bad syscall" not in server.log.read_text(), "the sandbox has stopped its process")
        return [hashlib.sha256(result.encode()).hexdigest() for result in results]

    async def wait_for_sandbox(self, port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        check((await reader.readline()).startswith(b"SSH-2.0-"), "sshd doesn't say its version")
        writer.write(b"SSH-2.0-HakmemTest\r\n")
        check(await reader.readexactly(5), "sshd says nothing about its keys")
        filtered = [pid for pid in descendants(process_table(), server.pid) if is_filtered(pid)]
        check(filtered, "no process of sshd is in a sandbox")
        if server.run.shared_object:
            maps = pathlib.Path(f"/proc/{filtered[0]}/maps").read_text()
            check(str(server.run.shared_object) in maps, "the sandboxed process does not map the library")
        await asyncio.sleep(0.2)
        writer.close()

    def login(self, run, port, command, options=(), **how):
        """What a command prints. On a busy machine a session may wait for ever, on the system's malloc too: again then."""
        who = ["ssh", "-F", "none", "-p", str(port), "-i", run.directory / "user", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR",
               "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes"]
        for attempt in range(3):
            try:
                return run.command([*who, *options, "127.0.0.1", command], limit=20, **how)
            except Failure as failure:
                if "didn't end within" not in str(failure) or (attempt == 2 and run.shared_object):
                    raise
                if attempt == 2:
                    raise Skip("a login does not end here, on the system's malloc") from None
                print(f"  a login for '{command}' on {run.allocator} did not end; once more", flush=True)
