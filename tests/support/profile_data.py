"""Made-up measurements: any number of configurations, with ticks that follow the rules."""

from hypothesis import strategies as st

from worldloom.profiler.measure import TRANSPORTS, Configuration, Measurement
from worldloom.profiler.results import SweepResult
from worldloom.server.engine.timing import STAGES, Span, Tick

TICKED = STAGES[1:]


def make_measurement(configuration: Configuration, step_s: float = 0.004, steps: int = 6) -> Measurement:
    """Steps of that length: half of each the engine waits, then all stages take equally long."""
    spans, ticks, client_steps = [], [], []
    for step in range(steps):
        start_s = 1000.0 + step * step_s
        middle_s = start_s + step_s / 2
        spans.append(Span("wait", start_s, middle_s))
        ends = [middle_s + step_s / 2 * (place + 1) / len(TICKED) for place in range(len(TICKED))]
        spans += [Span(stage, begin, end) for stage, begin, end in zip(TICKED, [middle_s, *ends], ends, strict=False)]
        ticks.append(Tick(middle_s, ends[-1], 1, configuration.lanes, configuration.lanes))
        client_steps.append((start_s, ends[-1]))
    wall_s = steps * step_s
    return Measurement(
        configuration=configuration,
        device="a <device> & more",
        steps=steps,
        seconds=wall_s,
        step_ms=(1e3 * step_s, 1.2e3 * step_s),
        wall_s=wall_s,
        stage_s={"wait": wall_s / 2, **dict.fromkeys(TICKED, wall_s / 2 / len(TICKED))},
        client_cpu_s=wall_s / 4,
        server_cpu_s=None if configuration.transport == "local" else wall_s,
        spans=tuple(spans),
        ticks=tuple(ticks),
        client_steps=tuple(client_steps),
    )


def make_result(measured: list[Measurement], planned: int | None = None) -> SweepResult:
    settings = {one.configuration.family: {"size": 9} for one in measured}
    return SweepResult(settings, 0.5, len(measured) if planned is None else planned, measured)


CONFIGURATIONS = st.builds(
    Configuration,
    family=st.sampled_from(["maze", "catch", "my-own_2"]),
    lanes=st.integers(1, 65_536),
    width=st.integers(1, 512),
    height=st.integers(1, 512),
    outputs=st.sampled_from([("rgb",), ("depth",), ("rgb", "gray", "depth", "segmentation")]),
    renderer=st.sampled_from(["cpu", "gl"]),
    transport=st.sampled_from(TRANSPORTS),
)
MEASURED = st.builds(make_measurement, CONFIGURATIONS, st.floats(1e-5, 10.0), st.integers(1, 4))
SWEEPS = st.lists(MEASURED, min_size=1, max_size=6, unique_by=lambda one: one.configuration)
