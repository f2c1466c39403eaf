"""Writes docs/worlds.md and its pictures, from the tables that `worldloom describe` prints: `make docs`.

Pictures are drawn by the cpu renderer. What the tutorial shows is what its own code draws.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.worlds_pictures import draw_cameras, label_swatch, shown_settings
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.render.choose import make_renderer
from worldloom.render.png import write_png
from worldloom.worlds.describe import EVERY_WORLD, Description, describe, range_in_words, type_in_words, value_in_words
from worldloom.worlds.family import Family
from worldloom.worlds.registry import find_family

ROOT = Path(__file__).parents[1]
PAGE, TUTORIAL, PICTURES = ROOT / "docs/worlds.md", ROOT / "docs/write-a-family.md", ROOT / "docs/worlds"
FAMILIES = ("catch", "cartpole", "maze")
"""Those in the box, the simplest first."""

_OUTPUT_LIST = " and ".join(", ".join(f"`{name}`" for name in OUTPUT_NAMES).rsplit(", ", 1))

_HEAD = f"""\
# Worlds

A world family is a simulation of many worlds of one kind at once. These are in the box; two more, `dmc` and `mujoco`,
come with an extra and are in [mujoco.md](mujoco.md); to make another, read [write-a-family.md](write-a-family.md). This
page is made by `make docs` from the tables that the command line prints:

```sh
worldloom worlds
worldloom describe maze
```

All families share the following.

- **Lanes.** A lane is one running world. Any number of lanes of a family with the same settings are stepped together.
  The same seed and actions give the same observations to the byte, whatever else is running.
- **Episodes.** A lane's first step begins an episode and ignores its action, and so does the step after an episode's
  last. An episode ends by the rules of its family (discount 0), or is interrupted after `max_steps` (discount 1).
- **Cameras.** Every family has the camera `eye`. Every camera has these outputs, which may be asked for alone or
  together: {_OUTPUT_LIST}, with one or four samples a pixel, in any size.
- **Hidden** observations tell what the pictures do not show. They are for judging a learner, not for feeding it.

Shapes are those of one lane, seen by one agent.
"""

_PICTURES_LEGEND = """\
In the pictures below each column is one lane; under its colours are its depth (light is near) and its labels.
"""


def families() -> list[type[Family]]:
    """The families of the page."""
    return [find_family(name) for name in FAMILIES]


def page() -> str:
    """The whole text."""
    every_world = [_spec(spec.name, vars(spec)) for spec in EVERY_WORLD]
    first = describe(families()[0])
    pictures = [
        (f"`<camera>.{one['name'].partition('.')[2]}`", type_in_words(one), "", one["text"])
        for one in first["cameras"][0]["outputs"]
    ]
    head = [_HEAD, *_table(("observation of every world", "type", "range", "what it is"), [*every_world, *pictures])]
    sections = ["\n".join(_section(describe(family))) for family in families()]
    return "\n".join([*head, "", _PICTURES_LEGEND, *sections])


def picture_name(family: str, camera: str) -> str:
    """The file of a camera's pictures, in docs/worlds."""
    return f"{family}-{camera}.png"


def _section(of: Description) -> Iterator[str]:
    name = of["family"]
    yield f"## {name}"
    yield f"{of['text']}\n"
    chosen = ", ".join(f"`{setting}={value_in_words(value)}`" for setting, value in shown_settings(name).items())
    drawn_with = f" Drawn with {chosen}." if chosen else ""
    for camera in of["cameras"]:
        yield f"![{name} through the camera {camera['name']}](worlds/{picture_name(name, camera['name'])})\n"
        yield f"*Camera `{camera['name']}`. {camera['text']}{drawn_with}*\n"
    settings = [
        (f"`{one['name']}`", one["type"], f"`{value_in_words(one['default'])}`", range_in_words(one), one["text"])
        for one in of["settings"]
    ]
    yield from _table(("setting", "type", "default", "range", "what it does"), settings)
    yield ""
    yield from _table(("action", "type", "range", "what it does"), [_spec(one["name"], one) for one in of["actions"]])
    yield ""
    observations = [_spec(one["name"], one) for one in of["observations"]]
    yield from _table(("observation", "type", "range", "what it is"), observations)
    yield ""
    swatches = (f"![]({'worlds/' + swatch_name(one['label'])}) {one['label']} {one['text']}" for one in of["labels"])
    yield "Labels: " + ", ".join(swatches) + ".\n"


def swatch_name(label: int) -> str:
    """The file of a label's colour, in docs/worlds."""
    return f"label-{label}.png"


def _spec(name: str, one: Description) -> tuple[str, ...]:
    hidden = "**Hidden.** " if one.get("hidden") else ""
    return f"`{name}`", type_in_words(one), range_in_words(one), hidden + one["text"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def run_tutorial(folder: Path) -> None:
    """What a reader does: save the family, then run the rest. It leaves balloon.png in the folder."""
    code = re.findall(r"^```python\n(.*?)^```$", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    (folder / "balloon.py").write_text(code[0])
    before = os.getcwd()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        exec(compile(code[1], TUTORIAL, "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))


def main() -> None:
    """Write the page and every picture."""
    PICTURES.mkdir(exist_ok=True)
    renderer = make_renderer("cpu")
    for family in families():
        for camera, sheet in draw_cameras(family, renderer).items():
            write_png(PICTURES / picture_name(family.name, camera), sheet)
    renderer.close()
    for label in range(max(len(family.labels) for family in families())):
        write_png(PICTURES / swatch_name(label), label_swatch(label))
    with tempfile.TemporaryDirectory() as folder:
        run_tutorial(Path(folder))
        (PICTURES / "balloon.png").write_bytes((Path(folder) / "balloon.png").read_bytes())
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)} and {len(list(PICTURES.glob('*.png')))} pictures")


if __name__ == "__main__":
    main()
