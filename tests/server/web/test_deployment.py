"""Files of deploy/ for Prometheus, Grafana and compose: promtool reads them, each alert fires when it should and not
before, and what they say of each other is so."""

import argparse
import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.web_programs import needs_web_programs
from worldloom.server.config import ServeConfig, add_config_flags, read_config

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs/metrics.md").read_text()
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
SERVER = 'job="worldloom",instance="a:9080"'
INTERVAL_S = 15
HEALTHY = {
    "up": "1x240",
    "worldloom_ready": "1x240",
    "worldloom_sample_age_seconds": "0.5x240",
    "worldloom_requests_total": "0+1500x240",
    'worldloom_refusals_total{code="NOT_FOUND"}': "0+10x240",
    'worldloom_refusals_total{code="INTERNAL"}': "0x240",
    "worldloom_rejected_streams_total": "0x240",
    "worldloom_memory_bytes": "80x240",
    "worldloom_max_memory_bytes": "100x240",
    "worldloom_lanes": "80x240",
    "worldloom_max_lanes": "100x240",
    "worldloom_streams": "80x240",
    "worldloom_max_streams": "100x240",
    "worldloom_waiting_requests": "8x240",
    "worldloom_ticks_total": "0+1000x240",
    'worldloom_tick_seconds_bucket{le="0.5"}': "0+1000x240",
    'worldloom_tick_seconds_bucket{le="1.0"}': "0+1000x240",
    'worldloom_tick_seconds_bucket{le="+Inf"}': "0+1000x240",
    "worldloom_live_pictures_total": "0+60x240",
    "worldloom_live_late_pictures_total": "0+30x240",
}
"""Series of a server that is busy but well, as promtool writes them: a value, or start and increase, every 15 s."""


class Case(NamedTuple):
    """Series with which an alert fires, the value that its texts show, and labels beside those of the server."""

    series: dict[str, str]
    value: str = ""
    labels: dict[str, str] = {}  # noqa: RUF012  # never changed


CASES = {
    "WorldloomDown": Case({"up": "0x240"}),
    "WorldloomEngineHung": Case({"worldloom_sample_age_seconds": "31x240"}, "31s"),
    "WorldloomNotReady": Case({"worldloom_ready": "0x240"}),
    "WorldloomInternalErrors": Case(
        {'worldloom_refusals_total{code="INTERNAL"}': "0+1x240"}, "8", {"code": "INTERNAL"}
    ),
    "WorldloomRefusals": Case({'worldloom_refusals_total{code="NOT_FOUND"}': "0+30x240"}, "2%"),
    "WorldloomRejectedStreams": Case({"worldloom_rejected_streams_total": "0+1x240"}, "20"),
    "WorldloomMemoryNearLimit": Case({"worldloom_memory_bytes": "95x240"}, "95%"),
    "WorldloomLanesNearLimit": Case({"worldloom_lanes": "96x240"}, "96%"),
    "WorldloomStreamsNearLimit": Case({"worldloom_streams": "97x240"}, "97%"),
    "WorldloomRequestsStall": Case({"worldloom_ticks_total": "7x240"}, "8"),
    "WorldloomSlowTicks": Case({'worldloom_tick_seconds_bucket{le="0.5"}': "0+900x240"}, "950ms"),
    "WorldloomLiveViewLate": Case({"worldloom_live_late_pictures_total": "0+57x240"}, "95%"),
}


def promtool(*words: str, text: str = "") -> str:
    """Run promtool, which has to find nothing wrong; return what it says."""
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def expanded(text: str, value: str) -> str:
    """A text of an alert with the names and values that Prometheus puts in."""
    text = re.sub(r"{{ \$value[^}]*}}", value, text)
    return text.replace("{{ $labels.instance }}", "a:9080")


def rule_test(name: str, case: Case) -> dict[str, Any]:
    """A test of promtool's: with these series the alert fires within a minute after its time, not before, and alone."""
    rule = RULES[name]
    due_s = seconds(rule["for"])
    labels = {"job": "worldloom", "instance": "a:9080", **rule["labels"], **case.labels}
    texts = {key: expanded(text, case.value) for key, text in rule["annotations"].items()}
    fires_at = f"{due_s + 60}s"
    severity = rule["labels"]["severity"]
    return {
        "name": name,
        "interval": f"{INTERVAL_S}s",
        "input_series": series({**HEALTHY, **case.series}),
        "alert_rule_test": [
            {"eval_time": f"{due_s - INTERVAL_S}s", "alertname": name, "exp_alerts": []},
            {
                "eval_time": fires_at,
                "alertname": name,
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": texts}],
            },
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname, severity) (ALERTS{alertstate="firing"})',
                "eval_time": fires_at,
                "exp_samples": [{"labels": f'{{alertname="{name}",severity="{severity}"}}', "value": 1}],
            }
        ],
    }


def series(values: dict[str, str]) -> list[dict[str, str]]:
    found = []
    for name, value in values.items():
        metric, _, labels = name.partition("{")
        found.append({"series": f"{metric}{{{SERVER},{labels or '}'}", "values": value})
    return found


@pytest.mark.slow
@needs_web_programs
def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    assert set(CASES) == set(RULES)
    well = {
        "name": "well",
        "interval": f"{INTERVAL_S}s",
        "input_series": series(HEALTHY),
        "promql_expr_test": [{"expr": "ALERTS", "eval_time": "55m", "exp_samples": []}],
    }
    tests = {
        "rule_files": [str(DEPLOY / "alerts.yml")],
        "evaluation_interval": f"{INTERVAL_S}s",
        "tests": [well, *(rule_test(name, case) for name, case in CASES.items())],
    }
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump(tests))
    assert "SUCCESS" in promtool("test", "rules", str(path))


@pytest.mark.slow
@needs_web_programs
def test_promtool_accepts_the_configuration() -> None:
    assert "SUCCESS" in promtool("check", "config", "--lint=all", "--lint-fatal", str(DEPLOY / "prometheus.yml"))


@pytest.mark.parametrize("name", RULES)
def test_the_page_tells_what_to_do(name: str) -> None:
    rule = RULES[name]
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    assert (page, heading) == ("docs/metrics.md", name.lower())
    assert f"\n### {name}\n" in PAGE
    assert {"summary", "description"} < set(rule["annotations"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")


COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def mounted() -> dict[str, Path]:
    """The files and folders of the repository that containers see, by their paths there."""
    found = [volume.split(":") for service in SERVICES.values() for volume in service["volumes"]]
    assert all(volume[0].startswith("./") or volume[0] in COMPOSE["volumes"] for volume in found)
    return {volume[1]: DEPLOY / volume[0] for volume in found if volume[0].startswith("./")}


def test_compose_mounts_what_there_is() -> None:
    assert all(path.exists() for path in mounted().values())
    build = SERVICES["worldloom"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    config = next(word for word in SERVICES["prometheus"]["command"] if word.startswith("--config.file="))
    prometheus = mounted()[config.removeprefix("--config.file=")]
    rules = yaml.safe_load(prometheus.read_text())["rule_files"]
    assert {str(Path("/etc/prometheus") / name) for name in rules} <= set(mounted())


def test_compose_starts_a_server_that_prometheus_may_ask() -> None:
    command, *words = SERVICES["worldloom"]["command"]
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    config: ServeConfig = read_config(parser.parse_args(words))
    assert command == "serve"
    target = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]
    host, _, port = target["targets"][0].partition(":")
    assert host in SERVICES
    assert config.page.web_host == (host,)
    assert config.page.web == f"0.0.0.0:{port}"
    assert f":{port}/healthz" in SERVICES["worldloom"]["healthcheck"]["test"][-1]


def test_other_machines_reach_nothing_of_it() -> None:
    published = [port for service in SERVICES.values() for port in service["ports"]]
    assert len(published) == 4
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_grafana_finds_its_dashboard_and_prometheus() -> None:
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/worldloom.yaml").read_text())["providers"]
    path = f"{provider['options']['path']}/worldloom.json"
    assert mounted()[path] == DEPLOY / "grafana/dashboard.json"
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == path
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped


def test_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana/dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
