"""How the report looks: one page that needs nothing from elsewhere, on phones and desks, by day and night."""

from worldloom.profiler.pens import DARK, LIGHT


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
svg{display:block;width:100%;height:auto;font-family:inherit}
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
.words{text-align:left}
@media (max-width:600px){th,td{padding:4px 6px}}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 16px;max-width:75ch}
dt{font-weight:600}
dd{margin:0}
"""
)

STAGE_TEXTS = {
    "wait": "The engine waits for requests: the client, and the way to it and back. Without a server it is the client.",
    "decode": "Requests are read and checked; worlds are made and joined.",
    "simulate": "All worlds that are ready take a step.",
    "plan": "Who asked for what: lanes are dressed, cameras placed, and each picture gets its place in a reply.",
    "cull": "What may be seen is chosen and packed. The cpu renderer does it inside draw.",
    "draw": "Pixels are drawn; with gl, orders are given and the drawing is waited for.",
    "readback": "Pixels come back from the graphics card.",
    "unpack": "They are put into the replies. The cpu renderer paints there itself.",
    "fill": "Rewards and other numbers are written into the replies.",
    "send": "Replies are handed to the thread that sends them.",
}
