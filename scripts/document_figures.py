"""Figures of the documents: who draws each, which are stale, and the dates of their captions.

A page says `drawn on DATE` right behind a figure, or once above several. A figure that is drawn anew and differs gets today's date there.
"""
import datetime
import os
import pathlib
import re
import subprocess

import check_includes
import documents
from documents import ROOT

FIGURES = ROOT / "docs/figures"
DRAWN = re.compile(r"\b[Dd]rawn on (\d{4}-\d\d-\d\d)")
SHOWN = re.compile(r"!\[[^\]]*\]\(((?:docs/)?figures/[^)]+)\)")


def captions(page: pathlib.Path):
    """Figures of a page, each with its caption's date as it was found, or nothing."""
    text = page.read_text()
    for figure in SHOWN.finditer(text):
        before = list(DRAWN.finditer(text, 0, figure.start()))
        behind = DRAWN.search(text, figure.end(), figure.end() + 300)
        yield (page.parent / figure[1]).resolve(), behind or (before[-1] if before else None)


def check_captions() -> list[str]:
    return [f"{documents.name_of(page)}: {figure.name} has no caption that says 'drawn on DATE'"
            for page in documents.pages() for figure, date in captions(page) if not date]


def check_rooms() -> list[str]:
    drawn = (FIGURES / "rooms.svg").read_text()
    text = (ROOT / "ARCHITECTURE.md").read_text()
    picture = text[text.index("```"):text.index("```", text.index("```") + 3)]
    wrong = [f"docs/figures/rooms.svg does not draw the room {room}: write_documents.py --figures" for room in sorted(check_includes.RANK)
             if f">{room}<" not in drawn]
    return wrong + [f"ARCHITECTURE.md's order of rooms lacks {room}" for room in sorted(check_includes.RANK) if not re.search(rf"\b{room}\b", picture)]


def draw_predicted(maker, folder: pathlib.Path, slow: bool) -> None:
    """The lines of scripts/write_figures.sh, which draw for a device of their own, so the same on every machine."""
    for _, line in documents.logical_lines((ROOT / "scripts/write_figures.sh").read_text(), 1):
        if line.startswith('"$adjoint"') and (slow or "--pareto-chart" not in line):
            subprocess.run(["bash", "-c", line], check=True, env=dict(maker.environment, adjoint=maker.adjoint, figures=str(folder)))


def draw_others(maker) -> None:
    """What wants the test programs, the history of git, and a browser."""
    test = pathlib.Path(maker.adjoint).parent / "bin/report_test"
    subprocess.run([test, "--gtest_filter=ScheduleChart.TheFigureOfTheDocument", "--gtest_brief=1"], check=True,
                   env=dict(os.environ, ADJOINT_WRITE_FIGURES="1"))
    rooms = subprocess.run([ROOT / "scripts/draw_rooms.py", "f7a7b95", "."], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    documents.write(FIGURES / "rooms.svg", rooms.stdout)
    subprocess.run(["node", ROOT / "scripts/write_studio_pictures.mjs", maker.adjoint], check=True)


def redate(changed: set[pathlib.Path]) -> None:
    today = datetime.date.today().isoformat()
    for page in documents.pages():
        text = page.read_text()
        for figure, date in captions(page):
            if date and figure in changed:  # a date is as long as another
                text = text[:date.start(1)] + today + text[date.end(1):]
        if text != page.read_text():
            documents.write(page, text)


def contents(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stale_figures(maker, check: bool, slow: bool, others: bool) -> list[str]:
    """Figures that are not what is drawn today; without `check` they are written, and their captions dated."""
    drawn = maker.folder / "figures"
    drawn.mkdir()
    draw_predicted(maker, drawn, slow)
    old = contents(FIGURES)
    if not check:
        for name, data in contents(drawn).items():
            if old.get(name) != data:
                documents.write(FIGURES / name, data.decode())
        if others:
            draw_others(maker)
    changed = {name for name, data in contents(drawn if check else FIGURES).items() if old.get(name) != data}
    if not check:
        redate({FIGURES / name for name in changed})
    return [f"docs/figures/{name} is not what is drawn today" for name in sorted(changed)]
