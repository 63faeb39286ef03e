"""Languages: PHP, Java, Go, Node, Ruby and R, each with a program of loads/ that prints what must be the same."""

from program import Program
from running import LOADS, build, check, find
from served import Serving


class PHP(Program):
    """PHP: arrays, strings, expressions and compression, in Zend's allocator and straight on malloc."""

    name = "php"
    packages = {"php": "php-cli"}
    serving = (Serving("php*", 100_000), Serving("php*", 1_000, processes=2))

    def load(self, run):
        script = run.load("churn.php")
        zend = run.command([find("php"), script])
        straight = run.command([find("php"), script], extra={"USE_ZEND_ALLOC": "0"})
        check(zend == straight, "PHP's own allocator gives another result")
        return zend


class Java(Program):
    """Java: ZGC with a small heap, eight threads that use Deflater, direct buffers, regular expressions and maps."""

    name = "java"
    packages = {"java": "default-jdk-headless", "javac": "default-jdk-headless"}
    serving = (Serving("java", 8_000),)

    def prepare(self, folder):
        build(["javac", "-d", folder, LOADS / "Churn.java"])

    def load(self, run):
        return run.command(["java", "-XX:+UseZGC", "-Xmx200m", "-Xms64m", "-XX:ConcGCThreads=2", "-XX:-UsePerfData", "-cp",
                            run.prepared, "Churn"])


class Go(Program):
    """Go with cgo: C.malloc and C.free in many goroutines, callbacks from C into Go, blocks freed by another thread."""

    name = "go"
    packages = {"go": "golang-go", "gcc": "gcc"}
    serving = (Serving("churn", 10_000),)

    def prepare(self, folder):
        build(["go", "build", "-o", folder / "churn", LOADS / "churn.go"], CGO_ENABLED="1")

    def load(self, run):
        return run.command([run.prepared / "churn"])


class Node(Program):
    """Node: four workers with buffers, compression, digests and transfers between them."""

    name = "node"
    packages = {"node": "nodejs"}
    serving = (Serving("node", 10_000),)

    def load(self, run):
        return run.command(["node", "--max-old-space-size=256", run.load("churn.js")])


class Ruby(Program):
    """Ruby: threads that make strings, hashes and big numbers, while they are collected; then GC.compact moves what it can."""

    name = "ruby"
    packages = {"ruby": "ruby"}
    serving = (Serving("ruby*", 100_000),)

    def load(self, run):
        return run.command(["ruby", run.load("churn.rb")])


class R(Program):
    """R: matrices, models, sorting, strings and recursion, to nine digits."""

    name = "r"
    packages = {"R": "r-base-core"}
    serving = (Serving("R", 20_000),)

    def load(self, run):
        return run.command(["R", "--vanilla", "--slave", "-f", run.load("figures.R")])
