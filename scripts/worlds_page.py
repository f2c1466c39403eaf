"""Write docs/worlds.md and its images, from the tables that `worldloom describe` prints: `make docs`.

Images are drawn by the cpu renderer. The image of docs/write-a-family.md is drawn by the code of that page.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from scripts.worlds_images import draw_cameras, label_swatch, shown_settings
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.render.choose import make_renderer
from worldloom.worlds.describe import (
    COMMON_OBSERVATIONS,
    Description,
    describe,
    format_range,
    format_type,
    format_value,
)
from worldloom.worlds.family import Family
from worldloom.worlds.registry import find_family

ROOT = Path(__file__).parents[1]
PAGE, TUTORIAL, IMAGES = ROOT / "docs/worlds.md", ROOT / "docs/write-a-family.md", ROOT / "docs/worlds"
FAMILIES = ("catch", "cartpole", "maze")
"""The families of the page, the simplest first."""

_OUTPUT_LIST = " and ".join(", ".join(f"`{name}`" for name in OUTPUT_NAMES).rsplit(", ", 1))

_HEAD = f"""\
# Worlds

A family is a kind of world: its rules, settings, actions, observations, cameras and scene. This page lists what the
built-in families offer. Three more come with extras: `dmc` and `mujoco` are in [mujoco.md](mujoco.md), `gym` is in
[gym.md](gym.md); to write another, read [write-a-family.md](write-a-family.md). `make docs` writes this page from the
tables that the command line prints:

```sh
worldloom worlds
worldloom describe maze
```

All families share the following.

- **Lanes.** A lane is one independent simulation. Any number of lanes of a family with the same settings are stepped
  together. The same seed and actions give the same observations to the byte, whatever else is running.
- **Seeds.** Lane `k` of a world with seed `s` is the world of one lane with the seed
  `(s + k * 0x9E3779B97F4A7C15) mod 2**64`: lane 0 has the seed of its world, and worlds with other seeds have other
  lanes. `dmc` is different: its lane `k` has the seed `s + k`, as users of dm_control number their environments, so
  that worlds whose seeds are near share lanes.
- **Episodes.** A lane's first step begins an episode and ignores its action, and so does the step after an episode's
  last, unless the setting `autoreset` says otherwise ([protocol.md](protocol.md)). An episode is terminated by the
  rules of its family (discount 0), or interrupted after `max_steps` (discount 1).
- **Cameras.** Every family has the camera `eye`. Every camera has these outputs, which may be requested alone or
  together: {_OUTPUT_LIST}, with one or four samples per pixel, in any size, and
  with the shadows of its lights or without (`shadows`, a setting of JoinWorld).
- **Variations.** Colours, textures, sizes, lights, cameras, sky and background of every family vary if settings say so
  ([randomisation.md](randomisation.md)). What was drawn is an observation for those who name it
  (`variation…`); `worldloom describe maze vary_colors=0.5` lists it with its shape.
- **Hidden** observations tell what the frames do not show. Use them to evaluate a learner, not as its input.

Shapes are those of one agent in one lane.
"""

_IMAGES_LEGEND = """\
In the images below each column is one lane: its colours, its depth (light is near) and its labels.
"""


def families() -> list[type[Family]]:
    """Return the families of the page."""
    return [find_family(name) for name in FAMILIES]


def page() -> str:
    """Return the text of the page."""
    common = [_spec(spec.name, vars(spec)) for spec in COMMON_OBSERVATIONS]
    first = describe(families()[0])
    frames = [
        (f"`<camera>.{one['name'].partition('.')[2]}`", format_type(one), "", one["text"])
        for one in first["cameras"][0]["outputs"]
    ]
    varied = [_spec(one["name"], one) for one in first["variation_observations"]]
    rows = [*common, *frames, *((name, re.sub(r"\[\d+\]", "[n]", type_), *more) for name, type_, *more in varied)]
    head = [_HEAD, *_table(("observation of every family", "type", "range", "what it is"), rows)]
    sections = ["\n".join(_section(describe(family))) for family in families()]
    return "\n".join([*head, "", _IMAGES_LEGEND, *sections])


def image_name(family: str, camera: str) -> str:
    """Return the name of a camera's image in docs/worlds."""
    return f"{family}-{camera}.png"


def _section(of: Description) -> Iterator[str]:
    name = of["family"]
    yield f"## {name}"
    yield f"{of['text']}\n"
    chosen = ", ".join(f"`{setting}={format_value(value)}`" for setting, value in shown_settings(name).items())
    drawn_with = f" Drawn with {chosen}." if chosen else ""
    for camera in of["cameras"]:
        yield f"![{name} through the camera {camera['name']}](worlds/{image_name(name, camera['name'])})\n"
        yield f"*Camera `{camera['name']}`. {camera['text']}{drawn_with}*\n"
    settings = [
        (f"`{one['name']}`", one["type"], f"`{format_value(one['default'])}`", format_range(one), one["text"])
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
    """Return the name of the image of a label's colour in docs/worlds."""
    return f"label-{label}.png"


def _spec(name: str, one: Description) -> tuple[str, ...]:
    hidden = "**Hidden.** " if one.get("hidden") else ""
    return f"`{name}`", format_type(one), format_range(one), hidden + one["text"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def run_tutorial(folder: Path) -> None:
    """Do what a reader of the tutorial does: save the family, then run the program. It writes balloon.png."""
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
    """Write the page and all its images."""
    IMAGES.mkdir(exist_ok=True)
    renderer = make_renderer("cpu")
    for family in families():
        for camera, sheet in draw_cameras(family, renderer).items():
            Image.fromarray(sheet).save(IMAGES / image_name(family.name, camera))
    renderer.close()
    for label in range(max(len(family.labels) for family in families())):
        Image.fromarray(label_swatch(label)).save(IMAGES / swatch_name(label))
    with tempfile.TemporaryDirectory() as folder:
        run_tutorial(Path(folder))
        (IMAGES / "balloon.png").write_bytes((Path(folder) / "balloon.png").read_bytes())
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)} and {len(list(IMAGES.glob('*.png')))} images")


if __name__ == "__main__":
    main()
