"""Each folder of src/ includes only itself and the layers below it; one of the units includes every source."""
import re

from lint_common import read, source_files

NAME = "layers"
UNITS = ("unity.c", "unity_rare.c", "unity_region.c")
BESIDE = (*UNITS, "entry/cxx_linked.c", "os/keys.c")  # the units themselves, and what differs in libhakmem.so and libhakmem.a

# From the bottom up. Folders in one row are peers, which must not include one another.
LAYERS = (("base",), ("os",), ("size",), ("diag",), ("arena",), ("span",), ("heap",),
          ("huge",), ("cache",), ("trace",), ("sample", "harden"), ("guard",), ("profile",), ("userheap",), ("upkeep",),
          ("stats",), ("process",), ("kinds",), ("entry",),
          ("interpose",  # in libhakmem.so alone, so not in unity.c
           "region"))  # libhakmem-region: malloc's library may not ask it for anything
RANK = {folder: rank for rank, row in enumerate(LAYERS) for folder in row}
# Hardened mode lies in one folder; these of its files stand in the layer that they extend.
PLACED = {"harden/mode": "span", "harden/spans": "span", "harden/quarantine": "cache", "harden/ending": "guard",
          "harden/kinds": "kinds"}
TOP = len(LAYERS)  # the units
SHARED_OBJECT = "interpose"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def folder_of(parts):
    """The layer's name, or '' for a file that lies directly in src/."""
    return PLACED.get("/".join(parts).rsplit(".", 1)[0]) or (parts[0] if len(parts) > 1 else "")


def rank_of(folder):
    return RANK.get(folder, TOP)


def complaint(root, folder, target):
    """Why a file of the folder must not include this target, or None."""
    if (root / "src" / target).is_file():
        other = folder_of(target.split("/"))
    elif (root / "include" / target).is_file():
        return None
    else:
        return "is neither under src/ nor under include/; includes are written relative to those"
    if folder == other or rank_of(other) < rank_of(folder):
        return None
    if rank_of(other) == rank_of(folder):
        return f"{folder}/ and {other}/ are peers"
    return f"{folder}/ lies below {other + '/' if other else 'src/*.c'}"


def check_unity(root, sources):
    """The release libraries are src/unity.c and unity_rare.c, and unity_region.c: a source that they leave out exists in the tests only."""
    units = [root / "src" / name for name in UNITS if (root / "src" / name).is_file()]
    if not units:
        return []
    included = [name for unit in units for name in INCLUDE.findall(read(unit))]
    return [f"src/unity.c: includes {name} {included.count(name)} times"
            for name in sources
            if name not in BESIDE and included.count(name) != (folder_of(name.split("/")) != SHARED_OBJECT)]


def run(root):
    seen, findings, sources = 0, [], []
    for path in source_files(root):
        where = path.relative_to(root)
        if where.parts[0] != "src":
            continue
        seen += 1
        if path.suffix == ".c":
            sources.append("/".join(where.parts[1:]))
        folder = folder_of(where.parts[1:])
        if folder and folder not in RANK:
            findings.append(f"{where}: {folder}/ is not in the order of layers")
            continue
        text = read(path)
        for match in INCLUDE.finditer(text):
            why = complaint(root, folder, match.group(1))
            if why:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f'{where}:{line}: includes "{match.group(1)}": {why}')
    return seen, findings + check_unity(root, sources)
