"""HTML report of a sweep: one file that loads nothing else, for phones and desktops, light and dark.

Plots are SVG elements whose colours are CSS variables, so that they follow the page. Needs the extra `report`.
"""

import html
from collections.abc import Iterable, Sequence

from worldloom.profiler.measure import Measurement
from worldloom.profiler.plots import (
    DARK,
    LIGHT,
    MAX_PANELS,
    Panel,
    growth_panels,
    svg,
    throughput_panels,
    timeline_panels,
)
from worldloom.profiler.results import SweepResult, machine
from worldloom.profiler.tables import FIT_HEADS, fit_cells, stages_in_use


def _variables(colors: dict[str, str]) -> str:
    return "".join(f"--{name}:{code};" for name, code in colors.items())


STYLE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 8px}
h2{font-size:1.2rem;margin:44px 0 4px}
h3{font-size:1rem;margin:20px 0 6px}
p{margin:6px 0;max-width:75ch}
.soft{color:var(--soft)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}
.fact{border:1px solid var(--grid);border-radius:10px;padding:10px 14px}
.fact b{display:block;font-size:1.35rem;line-height:1.3}
.fact span{font-size:.85rem;color:var(--soft)}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,320px),1fr));gap:20px;margin-top:14px}
figure{margin:0;border:1px solid var(--grid);border-radius:10px;padding:12px}
figcaption{font-weight:600;font-size:.9rem;margin-bottom:8px}
svg{display:block;width:100%;height:auto}
svg text{font-family:inherit!important}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;margin:10px 0;font-size:.85rem}
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.bars{display:grid;grid-template-columns:minmax(7.5em,max-content) 1fr max-content;gap:4px 10px;align-items:center;
font-size:.85rem}
.bar{display:flex;height:16px;border-radius:3px;overflow:hidden;background:var(--grid)}
.number{text-align:right;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;margin-top:12px}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--grid)}
th{color:var(--soft);font-weight:600}
.texts{text-align:left}
@media (max-width:600px){th,td{padding:4px 6px}}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 16px;max-width:75ch}
dt{font-weight:600}
dd{margin:0}
"""
)

STAGE_TEXTS = {
    "wait": "The engine waits for requests: time of the client and the transport. With `local` it is the client's.",
    "decode": "Requests are parsed and checked; worlds are created and joined.",
    "simulate": "All worlds that are ready are stepped.",
    "plan": "Instances are written, cameras placed, and each frame gets its offset in a reply.",
    "cull": "Visible instances are selected and packed. The cpu renderer does it inside draw.",
    "draw": "Pixels are drawn; with gl, commands are issued and the drawing is waited for.",
    "readback": "Pixels are copied from the graphics card.",
    "unpack": "They are written into the replies. The cpu renderer writes there itself.",
    "fill": "Rewards and other numbers are written into the replies.",
    "send": "Replies are handed to the thread that sends them.",
}


def render_report(result: SweepResult) -> str:
    """Return the page."""
    measured = result.measured
    fits = result.fits
    stages = stages_in_use(one.shares for one in measured)
    timelines = timeline_panels(measured)
    body = [
        _head(result),
        "<h2>Frames a second</h2>",
        "<p>A frame is one lane's step with all outputs that were requested: simulated, drawn, delivered.</p>",
        _panels(throughput_panels(measured)),
        "<h2>Where the time goes</h2>",
        "<p>The engine's time by stage, as a share of all time; at the right, the microseconds of a frame.</p>",
        _legend(stages),
        *_bars(measured),
        "<h2>How cost grows</h2>",
        "<p>Dots are the median step. Lines are the fit: a step takes a fixed time, so much for each lane, and so much "
        "for each pixel of each lane.</p>",
        _fit_table(result),
        _panels(growth_panels(measured, fits)),
        *_cpu_tables(result),
    ]
    if timelines:
        body += [
            "<h2>Timeline of the last ticks</h2>",
            "<p>Above the client's steps, below the engine's stages, in the colours of the bars. The file trace.json "
            "has more of them: open it with Perfetto.</p>",
            _legend(stages),
            _panels(timelines),
        ]
    body += ["<h2>All configurations</h2>", _measurement_table(measured, stages), *_failed(result)]
    body += ["<h2>What the stages are</h2>", _stage_list(stages)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>worldloom profile</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _head(result: SweepResult) -> str:
    best = max(result.measured, key=lambda one: one.frames_per_s)
    where = machine()
    unfinished = "" if len(result.measured) == result.planned else f" of {result.planned} planned"
    given = dict.fromkeys(f"{name}={value}" for one in result.settings.values() for name, value in one.items())
    settings = ", ".join(given) or "defaults"
    facts = (
        (f"{best.frames_per_s:,.0f}", f"frames a second at most: {best.configuration.name}"),
        (f"{len(result.measured)}{unfinished}", f"configurations, {result.seconds:g} s each"),
        (f"{100 * min(one.accounted for one in result.measured):.0f} %", "of the time is in some stage, at least"),
    )
    devices = dict.fromkeys(f"{one.configuration.renderer}: {one.device}" for one in result.measured)
    about = (
        f"{where['processor']}, {where['cores']} cores, Python {where['python']}. "
        f"{'; '.join(devices)}. Settings of the worlds: {settings}. {result.when}."
    )
    shown = "".join(
        f'<div class="fact"><b>{html.escape(number)}</b><span>{html.escape(text)}</span></div>'
        for number, text in facts
    )
    title = "<h1>What rendering costs here</h1>"
    return f'{title}\n<p class="soft">{html.escape(about)}</p>\n<div class="facts">{shown}</div>'


def _panels(panels: Sequence[Panel]) -> str:
    figures = (f"<figure><figcaption>{html.escape(panel.title)}</figcaption>{svg(panel)}</figure>" for panel in panels)
    more = '<p class="soft">Only the first are drawn; the table below has all.</p>' if len(panels) == MAX_PANELS else ""
    return f'<div class="panels">{"".join(figures)}</div>{more}'


def _legend(stages: Sequence[str]) -> str:
    chips = "".join(f'<span><i style="background:var(--{stage})"></i>{stage}</span>' for stage in stages)
    return f'<div class="legend">{chips}</div>'


def _bars(measured: Sequence[Measurement]) -> Iterable[str]:
    """Yield a bar for each configuration, under a heading for each group."""
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for one in measured:
        groups.setdefault(one.configuration.group(), []).append(one)
    for group, members in groups.items():
        rows = []
        for one in members:
            parts = "".join(_part(stage, 100 * share) for stage, share in one.shares.items() if share > 0)
            label = html.escape(f"{one.configuration.lanes} lanes, {one.configuration.size}")
            rows.append(
                f'<span>{label}</span><div class="bar">{parts}</div><span class="number">{one.frame_us:,.1f} µs</span>'
            )
        yield f'<h3>{html.escape(", ".join(group))}</h3><div class="bars">{"".join(rows)}</div>'


def _part(stage: str, percent: float) -> str:
    return f'<i style="width:{percent:.2f}%;background:var(--{stage})" title="{stage} {percent:.1f} %"></i>'


def _fit_table(result: SweepResult) -> str:
    if not result.fits:
        return '<p class="soft">Too few numbers of lanes or sizes for a fit: give --lanes and --size several.</p>'
    return _table(FIT_HEADS, [(*one.group, *fit_cells(one)) for one in result.fits], texts=4)


def _cpu_tables(result: SweepResult) -> list[str]:
    """Return a heading and a table for each side whose processor time was fitted."""
    parts = []
    for side, fits in result.cpu_fits.items():
        if fits:
            parts.append(f"<h3>Processor time of the {side}</h3>")
            parts.append(_table(FIT_HEADS, [(*one.group, *fit_cells(one)) for one in fits], texts=4))
    return parts


def _measurement_table(measured: Sequence[Measurement], stages: Sequence[str]) -> str:
    heads = ["family", "outputs", "renderer", "transport", "size", "lanes", "frames/s", "µs", "ms a step", "95 %"]
    rows = [
        (
            *one.configuration.group(),
            one.configuration.size,
            str(one.configuration.lanes),
            f"{one.frames_per_s:,.0f}",
            f"{one.frame_us:.1f}",
            f"{one.step_ms[0]:.2f}",
            f"{one.step_ms[1]:.2f}",
            *(f"{100 * one.shares[stage]:.1f}" for stage in stages),
        )
        for one in measured
    ]
    return _table((*heads, *(f"{stage} %" for stage in stages)), rows, texts=5)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """Return a table whose first columns are texts; of these, columns with one value throughout are left out."""
    same = [number for number in range(texts) if len(rows) > 1 and len({row[number] for row in rows}) == 1]
    heads, *rows = ([cell for number, cell in enumerate(row) if number not in same] for row in (heads, *rows))
    texts -= len(same)

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="texts"' if number < texts else "" for number in range(len(cells))]
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    lines = [f"<tr>{line(heads, 'th')}</tr>", *(f"<tr>{line(row, 'td')}</tr>" for row in rows)]
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'


def _failed(result: SweepResult) -> Iterable[str]:
    for configuration, problem in result.failed:
        yield f"<p>Not measured: {html.escape(configuration.name)}: {html.escape(problem)}</p>"


def _stage_list(stages: Sequence[str]) -> str:
    return f"<dl>{''.join(f'<dt>{stage}</dt><dd>{html.escape(STAGE_TEXTS[stage])}</dd>' for stage in stages)}</dl>"
