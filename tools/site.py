#!/usr/bin/env python3
"""Builds the site from docs/ and the other pages of the tree into out/site, with MkDocs Material.

  site.py            builds it; a link to nowhere is an error
  site.py --look     also opens every page in headless Chromium, wide and narrow, light and dark, looks for what does not fit,
                     and asks the search; pictures go to out/site-pictures
"""
import argparse
import functools
import http.server
import os
import posixpath
import re
import shutil
import subprocess
import sys
import threading
import time

import site_charts
from package_common import ROOT, Failed, fresh, project_files, run, version

VENV = ROOT / "out" / "docs-venv"
STAGED, SITE, PICTURES = (ROOT / "out" / name for name in ("site-source", "site", "site-pictures"))
# Where a page of the tree stands on the site; all of docs/ stands at the top.
OTHERS = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "src/README.md": "source.md",
          "SECURITY.md": "reporting.md", "CODE_OF_CONDUCT.md": "conduct.md"}
NAVIGATION = [
    ("Start", ["index.md", "install.md", "languages.md", "recipes.md", "coming-from.md"]),
    ("Use", ["options.md", "statistics.md", "blackbox.md", "profiling.md", "api.md", "heaps.md", "security.md", "lab.md", "production.md", "fleet.md"]),
    ("Manual pages", ["man/hakmem.1.md", "man/hakmem.7.md", "man/hakmem.h.3.md"]),
    ("Measured", ["benchmarks.md", "waste.md", "memory.md", "scaling.md", "compatibility.md"]),
    ("Inside", ["source.md", "design.md", "concurrency.md", "tests.md", "contributing.md"]),
    ("Project", ["changelog.md", "policy.md", "reporting.md", "conduct.md"]),
]
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
LOOK = ROOT / "tools" / "site"   # the site's own style and script
# How much a page counts in the search: who looks for a name wants what it is and does before what was once measured of it.
BOOSTS = (("options.md", 8), ("statistics.md", 4), ("api.md", 4), ("decisions/", 0.2), ("changelog.md", 0.2), ("tests.md", 0.2))
SEARCHES = {"purge_delay": "options.html", "HAKMEM_HARDEN": "options.html", "thread_budget": "options.html", "refill_count": "options.html"}
WIDTHS = {"wide": 1400, "narrow": 400}
SCHEMES = ("paper", "slate")
PICTURE_HEIGHT = 6000


def places():
    """{file of the tree: its place on the site}."""
    found = {name: posixpath.relpath(name, "docs") for name in project_files("docs") if name.endswith((".md", ".svg", ".c"))}
    return {**found, **{name: place for name, place in OTHERS.items() if (ROOT / name).is_file()}}


def linked(name, text, where):
    """A page's text with links that are good on the site; what is not on it is named, not linked."""
    def replace(match):
        shown, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        if ":" in path or not path:
            return match.group()
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        candidates = (wanted, posixpath.join(wanted, "README.md"))
        place = next((where[each] for each in candidates if each in where), None)
        if place is not None:
            here = posixpath.dirname(where[name])
            return f"{shown}({posixpath.relpath(place, here or '.')}{hash_sign}{anchor})"
        if not (ROOT / wanted).exists():
            raise Failed(f"{name}: a link to {target}, which does not exist")
        return shown[1:-1] if shown.startswith("[") else shown
    return LINK.sub(replace, text)


def manual(name, source):
    """A manual page as text in a page."""
    done = subprocess.run(["mandoc", "-Tutf8", "-Owidth=100"], input=source, stdout=subprocess.PIPE, text=True, check=True)
    plain = re.sub(r".\x08", "", done.stdout)
    return f"# {name}\n\n```text\n{plain.strip()}\n```\n"


def weighed(place, text):
    """A page's text with its weight in the search."""
    boost = next((boost for start, boost in BOOSTS if place.startswith(start)), None)
    return text if boost is None else f"---\nsearch:\n  boost: {boost}\n---\n\n{text}"


def stage():
    """All pages, as MkDocs reads them."""
    fresh(STAGED / "pages")
    where = places()
    for name, place in where.items():
        target = STAGED / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            text = linked(name, (ROOT / name).read_text(encoding="utf-8"), where)
            if place != OTHERS["README.md"]:   # the first page is seen at once, without 4 MB of a chart's code
                text = site_charts.interactive(text, site_charts.SCRIPT)
            target.write_text(weighed(place, text), encoding="utf-8")
        else:
            shutil.copy2(ROOT / name, target)
    site_charts.write_script(STAGED / "pages")
    for each in LOOK.iterdir():
        shutil.copy2(each, STAGED / "pages")
    lab = run([ROOT / "out" / "lab" / "bin" / "python", "-m", "hakmem_lab.man"])
    pages = {"hakmem.1": lab, **{name: (ROOT / "docs" / "man" / name).read_text(encoding="utf-8") for name in ("hakmem.7", "hakmem.h.3")}}
    for name, source in pages.items():
        target = STAGED / "pages" / "man" / f"{name}.md"
        target.parent.mkdir(exist_ok=True)
        stem, _, section = name.rpartition(".")
        target.write_text(manual(f"{stem}({section})", source), encoding="utf-8")


def palettes():
    """The two schemes, of which the system chooses, and the reader by a button."""
    for wish, scheme, icon, other in (("light", "paper", "weather-night", "Dark"), ("dark", "slate", "weather-sunny", "Light")):
        yield (f"{{media: '(prefers-color-scheme: {wish})', scheme: {scheme}, primary: custom, accent: custom, "
               f"toggle: {{icon: material/{icon}, name: {other}}}}}")


def configure():
    """mkdocs.yml, without a font or a script from elsewhere."""
    shown = [page for _, pages in NAVIGATION for page in pages]
    if lost := sorted(page.name for page in (STAGED / "pages").glob("*.md") if page.name not in shown):
        raise Failed(f"no way leads to {', '.join(lost)}: name it in NAVIGATION of tools/site.py")
    lines = ["site_name: HAKMEM", f"site_description: A drop-in malloc for Linux, version {version()}", f"docs_dir: {STAGED / 'pages'}",
             f"site_dir: {SITE}", "use_directory_urls: false",
             "theme: {name: material, font: false, features: [navigation.tabs, navigation.top, search.highlight, content.code.copy],",
             "  palette:", *(f"   {', ' if place else '['}{each}" for place, each in enumerate(palettes())), "  ]}",
             "extra_css: [look.css]", "extra_javascript: [look.js]", "plugins: [search]", "markdown_extensions: [tables, attr_list, toc: {permalink: true}, pymdownx.superfences, pymdownx.highlight]",
             "validation: {nav: {omitted_files: ignore}, links: {not_found: warn, anchors: warn, unrecognized_links: warn}}", "nav:"]
    for title, pages in NAVIGATION:
        lines += [f"  - {title}:", *(f"    - {page}" for page in pages if (STAGED / "pages" / page).is_file())]
    (STAGED / "mkdocs.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def builder():
    """MkDocs, from an environment of its own."""
    if not (VENV / "bin" / "mkdocs").is_file():
        run([sys.executable, "-m", "venv", "--clear", VENV])
        run([VENV / "bin" / "pip", "install", "-q", "mkdocs-material>=9.5,<10"])
    return VENV / "bin" / "mkdocs"


def build():
    """The site; the number of its pages."""
    if shutil.which("mandoc") is None:
        raise Failed("mandoc is not installed; ./dev setup --packages brings it")
    stage()
    configure()
    run([builder(), "build", "--strict", "--clean", "-f", STAGED / "mkdocs.yml"], env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    index = SITE / "search" / "search_index.json"
    if not index.is_file() or "HAKMEM_PURGE_DELAY" not in index.read_text(encoding="utf-8"):
        raise Failed("the search does not find the options")
    return sorted(SITE.rglob("*.html"))


def look(pages):
    """Every page in a browser: what a reader has to scroll sideways for, or what the browser complains of, is an error."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    driver = shutil.which("chromedriver")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver) if driver else None)
    fresh(PICTURES)
    try:
        return [*(finding for page in pages for finding in look_at(browser, page)), *searched(browser)]
    finally:
        browser.quit()


def set_size(browser, name, width, height):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": name == "narrow"})


def set_scheme(browser, scheme):
    browser.execute_script("""const still = document.createElement('style');
        still.textContent = '* { transition: none !important }';
        document.head.append(still);
        document.body.setAttribute('data-md-color-scheme', arguments[0]);
        if (window.dressCharts) window.dressCharts();""", scheme)


def look_at(browser, page):
    for name, width in WIDTHS.items():
        set_size(browser, name, width, 900)
        browser.get(page.as_uri())
        where = f"{page.relative_to(SITE)} ({name})"
        excess = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        if excess > 0:
            yield f"{where}: {excess} pixels too wide"
        if not browser.execute_script("return document.querySelector('h1') && document.querySelector('h1').offsetHeight > 0"):
            yield f"{where}: no heading is seen"
        empty = browser.execute_script("""return Array.from(document.querySelectorAll('.plotly-graph-div'))
            .filter(each => !each.querySelector('svg.main-svg') || each.querySelector('svg.main-svg').clientWidth < 200
                            || each.querySelectorAll('.scatterlayer .trace').length < 2).map(each => each.id)""")
        if empty:
            yield f"{where}: not drawn: {', '.join(empty)}"
        if page.parent == SITE:
            height = min(browser.execute_script("return document.documentElement.scrollHeight"), PICTURE_HEIGHT)
            set_size(browser, name, width, height)
            for scheme in SCHEMES:
                set_scheme(browser, scheme)
                browser.save_screenshot(str(PICTURES / f"{page.stem}-{name}-{scheme}.png"))
        for line in browser.get_log("browser"):
            if "file://" not in line["message"] or "Refused" in line["message"]:
                yield f"{where}: {line['message'][:200]}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def searched(browser):
    """What the search finds first: the page of the options, where one asks for an option. It needs a server, like any search of MkDocs."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for words, wanted in SEARCHES.items():
            browser.get(f"http://127.0.0.1:{server.server_port}/index.html?q={words}")
            first, until = None, time.monotonic() + 20
            while first is None and time.monotonic() < until:
                time.sleep(0.2)
                first = browser.execute_script("const a = document.querySelector('.md-search-result__link'); return a && a.getAttribute('href')")
            if first is None or f"/{wanted}" not in f"/{first.split('?')[0].split('#')[0].split('/')[-1]}":
                yield f"the search for {words} finds {first} first, not {wanted}"
        server.shutdown()


def main():
    parser = argparse.ArgumentParser(prog="./dev docs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--look", action="store_true")
    chosen = parser.parse_args()
    pages = build()
    print(f"{len(pages)} pages in {SITE.relative_to(ROOT)}; all links lead somewhere")
    if not chosen.look:
        return 0
    findings = look([page for page in pages if page.name != "404.html"])
    widths = " and ".join(f"{width} pixels" for width in WIDTHS.values())
    print("\n".join(findings) or f"every page was seen at {widths}, light and dark; the search finds options first")
    return 1 if findings else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"./dev docs: {error}")
