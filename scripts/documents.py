"""What scripts read of the documents: pages, the commands that they show, and regions that a script writes.

A region is what lies between two lines:

    <!-- made by scripts/write_documents.py: NAME, 2026-11-18 -->
    <!-- end -->
"""
import dataclasses
import os
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a command of a document begins with.
PROGRAMS = r"(?:adjoint|build/release/adjoint|(?:sudo )?make|mpirun|ctest|ninja|bench/[\w.]+|scripts/[\w.]+|tests/fuzz/[\w.]+)"
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
REGION = re.compile(r"<!-- made by scripts/write_documents\.py: (\w+), (\d{4}-\d\d-\d\d) -->\n(.*?)<!-- end -->", re.S)


def pages() -> list[pathlib.Path]:
    return [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")] + sorted((ROOT / "docs").glob("*.md"))


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def write(path: pathlib.Path, text: str) -> None:
    """The whole text or nothing: a script that is ended while it writes leaves what was there."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


@dataclasses.dataclass
class Command:
    page: str
    line: int
    text: str  # as bash takes it, without its comment
    inline: bool  # in a sentence, not in a block of code

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def without_comment(line: str) -> str:
    """A `#` behind a blank begins a comment, unless it is quoted."""
    quote = ""
    for i, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (i == 0 or line[i - 1].isspace()):
            return line[:i].rstrip()
    return line.rstrip()


def logical_lines(block: str, first: int):
    """Lines with those that follow a backslash or an open quote, each with its number."""
    text, start = "", first
    for number, line in enumerate(block.splitlines(), first):
        start = start if text else number
        text += line + "\n"
        bare = without_comment(text.rstrip("\n"))
        if bare.endswith("\\") or bare.count("'") % 2:
            continue
        yield start, bare.strip()
        text = ""


def fences(text: str):
    """Blocks of code: what stands behind the three marks, the contents, and the number of their first line."""
    for found in FENCE.finditer(text):
        yield found[1].strip(), found[2], text.count("\n", 0, found.start()) + 2


def commands(page: pathlib.Path) -> list[Command]:
    text, name, out = page.read_text(), name_of(page), []
    for kind, block, first in fences(text):
        if kind not in ("", "sh"):
            continue
        shown = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        if shown:  # a session: what has no "$ " in front is output
            out += [Command(name, first, without_comment(line), False) for line in shown]
            continue
        for number, line in logical_lines(block, first):
            if line and (kind == "sh" or re.match(PROGRAMS + r"(\s|$)", line)):
                out.append(Command(name, number, line, False))
    prose = FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in re.finditer(r"`([^`]+)`", prose):
        span = " ".join(found[1].split())
        if re.match(PROGRAMS + r"(\s|$)", span) or re.match(r"--[a-z]", span):
            out.append(Command(name, prose.count("\n", 0, found.start()) + 1, span, True))
    return out


def files(page: pathlib.Path):
    """Files that a page tells the reader to save: blocks with `file=NAME`, or whose first line is `# NAME.functor`."""
    for kind, block, _ in fences(page.read_text()):
        said = re.search(r"\bfile=(\S+)", kind) or re.match(r"# ([\w.]+\.(?:functor|scheme|toml|optimizer))\b", block)
        if said:
            yield said[1], block


def words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
