"""Documents, pictures, films and pages: LibreOffice, ImageMagick, Blender, ffmpeg, Chromium and Firefox."""

import hashlib
import zipfile

from program import Program
from running import Failure, check, find
from served import Serving

PARAGRAPHS = 250
MAGICK = "magick|convert-im6.q16"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class LibreOffice(Program):
    """LibreOffice: a generated document becomes a PDF, an ODT and a text, the ODT a text again."""

    name = "libreoffice"
    packages = {"soffice": "libreoffice-writer-nogui", "pdftotext": "poppler-utils"}
    serving = (Serving("soffice.bin", 100_000), Serving("pdftotext", 1_000))
    FORMATS = {"pdf": "pdf", "odt": "odt", "txt": "txt:Text (encoded):UTF8"}

    def load(self, run):
        (run.directory / "book.html").write_text(book(), encoding="utf-8")
        for filter in self.FORMATS.values():
            self.convert(run, "book.html", filter)
        text = (run.directory / "book.txt").read_text(encoding="utf-8")
        check(text.count("Chapter") == PARAGRAPHS // 10 and "0987654321" in text, "the text lacks what the document says")
        # Not its bytes: the order of its parts follows addresses.
        pdf = run.command(["pdftotext", "-layout", run.directory / "book.pdf", "-"])
        check(pdf.count("Chapter") == PARAGRAPHS // 10, "the PDF lacks chapters")
        with zipfile.ZipFile(run.directory / "book.odt") as archive:
            check(archive.testzip() is None, "the ODT is damaged")
            styles = len(archive.read("styles.xml"))
        (run.directory / "book.txt").unlink()
        self.convert(run, "book.odt", self.FORMATS["txt"])
        return text, (run.directory / "book.txt").read_text(encoding="utf-8"), styles, pdf

    def convert(self, run, name, filter):
        run.command([find("soffice"), f"-env:UserInstallation=file:{run.directory / 'profile'}", "--headless", "--norestore",
                     "--convert-to", filter, run.directory / name], limit=200)


def book():
    """A document with headings, a table, lists and bold words."""
    parts = ["<html><head><meta charset='utf-8'><title>Book</title></head><body>"]
    for i in range(PARAGRAPHS):
        if i % 10 == 0:
            parts.append(f"<h1>Chapter {i // 10}</h1><ul>" + "".join(f"<li>point {i}.{k}</li>" for k in range(5)) + "</ul>")
        words = " ".join(f"w{(i * 7919 + k * 104729) % 9973}" for k in range(80))
        parts.append(f"<p>{words} <b>bold {i}</b> and <i>Ünïcode ✓ {i * i}</i></p>")
        if i % 25 == 0:
            parts.append("<table border=1>" + "".join(
                "<tr>" + "".join(f"<td>{row * column}</td>" for column in range(8)) + "</tr>" for row in range(12)) + "</table>")
    return "".join(parts) + "<p>0987654321</p></body></html>"


class ImageMagick(Program):
    """ImageMagick: noise with a seed, filters, distortion, quantising and formats, in several threads."""

    name = "imagemagick"
    packages = {MAGICK: "imagemagick"}
    serving = (Serving("convert*|magick", 1_000, processes=3),)
    WORK = (
        ["-seed", "7", "-size", "700x500", "plasma:fractal", "-blur", "0x3", "-rotate", "17", "+repage", "ppm:one.ppm"],
        ["one.ppm", "-colors", "64", "-resize", "150%", "-sharpen", "0x1", "-define", "png:exclude-chunks=date,time",
         "+set", "date:create", "+set", "date:modify", "png:two.png"],
        ["two.png", "-distort", "Barrel", "0.1 0.0 0.0 1.0", "-fft", "-delete", "1", "-depth", "8", "ppm:three.ppm"],
        ["one.ppm", "two.png", "-resize", "300x300!", "-evaluate-sequence", "median", "-quality", "85", "-strip", "jpeg:four.jpg"],
        ["four.jpg", "-crop", "50x50", "+repage", "-append", "-paint", "2", "-strip", "gif:five.gif"],
    )

    def load(self, run):
        for arguments in self.WORK:
            run.command([find(MAGICK), *arguments])
        return [digest(run.directory / name) for name in ("one.ppm", "two.png", "three.ppm", "four.jpg", "five.gif")]


class Blender(Program):
    """Blender: a generated scene, modifiers, three pictures of it by Cycles in four threads."""

    name = "blender"
    packages = {"blender": "blender"}
    serving = (Serving("blender", 100_000),)

    def load(self, run):
        output = run.command([find("blender"), "--background", "--factory-startup", "--python-exit-code", "7",
                              "--python", run.load("scene.py"), "--", run.directory], limit=250)
        pictures = [line for line in output.splitlines() if line.startswith("picture of ")]
        check(len(pictures) == 3, f"not three pictures:\n{output[-500:]}")
        return pictures


class Ffmpeg(Program):
    """ffmpeg: generated film and sound through filters and four encoders in several threads, then decoded again."""

    name = "ffmpeg"
    packages = {"ffmpeg": "ffmpeg"}
    serving = (Serving("ffmpeg", 1_000, processes=4),)
    EXACT = ["-flags", "+bitexact", "-fflags", "+bitexact", "-map_metadata", "-1"]
    CODECS = {"one.mkv": ["-c:v", "ffv1", "-level", "3", "-slices", "4", "-c:a", "flac"],
              "two.avi": ["-c:v", "mpeg4", "-q:v", "4", "-c:a", "pcm_s16le"],
              "three.mpg": ["-c:v", "mpeg2video", "-q:v", "3", "-c:a", "mp2"]}

    def load(self, run):
        ffmpeg = [find("ffmpeg"), "-nostdin", "-v", "error", "-threads", "4"]
        digests = []
        for name, codecs in self.CODECS.items():
            run.command([*ffmpeg, "-f", "lavfi", "-i", "testsrc2=size=480x360:rate=25:duration=5", "-f", "lavfi", "-i",
                         "sine=frequency=440:sample_rate=48000:duration=5", "-vf", "hue=s=2,rotate=0.1,unsharp", *codecs,
                         *self.EXACT, name])
            digests.append(digest(run.directory / name))
            digests.append(run.command([*ffmpeg, "-i", name, "-vf", "scale=320:240,eq=contrast=1.2", "-flags", "+bitexact",
                                        "-f", "framemd5", "-"]))
        return digests


PAGE = """<!DOCTYPE html><html><body><ul id=list></ul><canvas id=c width=300 height=300></canvas><p id=sum></p><script>
let state = 1, kept = [], sum = 0;
function number() { state = Math.imul(state, 1103515245) + 12345 & 0x7fffffff; return state; }
for (let i = 0; i < 3000; i++) {
  const item = document.createElement("li");
  item.textContent = "item " + number().toString(36).repeat(1 + i % 9);
  document.getElementById("list").append(item);
  kept.push(new Uint8Array(number() % 20000).fill(i));
  if (kept.length > 100) sum += kept.splice(number() % 100, 1)[0].length;
  if (i % 3 == 0) document.getElementById("list").firstChild.remove();
}
const context = document.getElementById("c").getContext("2d");
for (let i = 0; i < 500; i++) { context.fillStyle = "#" + (number() % 900 + 100); context.fillRect(number() % 300, i % 300, 9, 9); }
const data = context.getImageData(0, 0, 300, 300).data;
document.getElementById("sum").textContent = sum + " " + data.reduce((a, b) => (a * 31 + b) % 1000003, 0);
</script></body></html>
"""


class Chromium(Program):
    """Chromium, headless: the document that a page's script has built.

    Its executable defines malloc itself (PartitionAlloc) and thereby comes before a preloaded library, so that HAKMEM
    serves its helper programs alone: what is shown is that all its processes, sandboxed ones too, work with the library
    in them.
    """

    name = "chromium"
    packages = {"chromium": "chromium"}
    serving = (Serving("chromium", 0, processes=4),)

    def load(self, run):
        run.drop_privileges()
        (run.directory / "page.html").write_text(PAGE)
        try:
            document = self.dump(run)
        except Failure as failure:
            if "No usable sandbox" not in str(failure):
                raise
            document = self.dump(run, "--no-sandbox")   # a system that forbids what the sandbox is made of
        check("</html>" in document and document.count("<li>") > 1000, f"the page has not come to its end:\n{document[-300:]}")
        return document

    def dump(self, run, *options):
        return run.command([find("chromium"), "--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                            f"--user-data-dir={run.directory / 'home' / 'profile'}", *options, "--dump-dom",
                            f"file:{run.directory / 'page.html'}"], limit=90)


class Firefox(Program):
    """Firefox, headless: the picture of a page."""

    name = "firefox"
    packages = {"firefox-esr|firefox": "firefox-esr"}
    serving = (Serving("firefox*", 0, processes=3),)
    refuses = ("Firefox defines malloc and operator delete(void *) in its executable, but not the sized delete and"
               " reallocarray that its libraries call: these reach the preloaded library with Firefox's own blocks")

    def load(self, run):
        run.drop_privileges()
        (run.directory / "page.html").write_text(PAGE)
        run.command([find("firefox-esr|firefox"), "--headless", "--profile", run.directory / "home", "--screenshot",
                     run.directory / "tmp" / "page.png", f"file:{run.directory / 'page.html'}"], limit=90)
        return digest(run.directory / "tmp" / "page.png")
