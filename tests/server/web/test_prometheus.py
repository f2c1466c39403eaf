"""A real Prometheus scrapes a server that clients use: its numbers are theirs, and every query of the dashboard and of
the alerts finds data."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import grpc
import pytest
import yaml
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2, error, tensor_utils
from dm_env_rpc.v1.extensions.properties import PropertiesExtension

from scripts.support.server_process import ServerProcess, serving
from tests.support.web_programs import needs_web_programs
from worldloom.client import VectorEnv

pytestmark = [pytest.mark.slow, needs_web_programs]

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs/metrics.md").read_text()
CERTS = ROOT / "tests/server/transports/certs"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
WEB = ("--web", "127.0.0.1:0")
TIMEOUT_S = 30.0
COMPARISON = re.compile(r" (?:==|>) [\d.]+")


class Scraped(NamedTuple):
    """Results of the run: where Prometheus is, the page of the server, and what the clients did and saw."""

    prometheus: str
    page: str
    steps: int
    """Steps that clients made, and the resets before them."""
    lane_steps: int
    refusals: int
    pictures: int
    """Pictures that a viewer received."""
    counters: dict[str, float]
    """Counters that a client reads as properties, which do not come from the samples that metrics come from."""
    metrics: dict[str, float]
    """Values that Prometheus has for the same moment, by name and labels."""


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return str(response.read().decode())


def query(prometheus: str, text: str) -> list[dict[str, Any]]:
    """The result of an instant query."""
    try:
        answer = json.loads(get(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': text})}"))
    except urllib.error.HTTPError as failed:
        raise AssertionError(f"{text}: {failed.read().decode()}") from None
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def has_data(prometheus: str, text: str) -> bool:
    """A query finds a number, at least one that is no ratio of nothing to nothing."""
    return any(one["value"][1] != "NaN" for one in query(prometheus, text))


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copy(CERTS / "ca.pem", folder)
    (folder / "token").write_text("sesame")
    tls = ("--tls-cert", f"{CERTS}/server.pem", "--tls-key", f"{CERTS}/server-key.pem")
    flags = ((), (*tls, "--token-file", f"{folder}/token"))
    with ExitStack() as at_the_end:
        with ThreadPoolExecutor(2) as threads:
            server, secure = threads.map(lambda more: at_the_end.enter_context(serving(*WEB, *more)), flags)
        program = start_prometheus(folder, page_of(server), page_of(secure))
        try:
            log = (folder / "log").read_text
            address = found_in(log, r'msg="Listening on" address=(\S+)(?s:.*)ready to receive web requests')
            yield run_clients(f"http://{address}", page_of(server), server.address)
        finally:
            program.kill()
            program.wait()


def page_of(server: ServerProcess) -> str:
    """The address of a server's page, which its log tells, perhaps a moment after it listens."""
    return found_in(lambda: server.log, r"serving a page url=(\S+)/$")


def found_in(read: Callable[[], str], pattern: str) -> str:
    """The part of a text that a pattern finds, once it is there."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (found := re.search(pattern, read(), re.MULTILINE)) is None:
        assert time.monotonic() < deadline_s, read()
        time.sleep(0.05)
    return found[1]


def start_prometheus(folder: Path, page: str, secure_page: str) -> "subprocess.Popen[bytes]":
    """Start Prometheus with the configuration of deploy/ for one server, and the page's for one with TLS and a token.

    All that is changed are the names of servers and jobs, and times.
    """
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / name) for name in config["rule_files"]]
    (secure,) = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])["scrape_configs"]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [page.removeprefix("http://")]}]
    secure |= {"job_name": "secure", "static_configs": [{"targets": [secure_page.removeprefix("https://")]}]}
    config["scrape_configs"].append(secure)
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    words = [f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
    with (folder / "log").open("w") as log:
        return subprocess.Popen(["prometheus", *words], stderr=log, cwd=folder)


def run_clients(prometheus: str, page: str, address: str) -> Scraped:
    """Step worlds while somebody watches one, cause errors, and wait until Prometheus has the last numbers."""
    with (
        VectorEnv(address, "catch", num_envs=8, width=16, height=16) as catch,
        VectorEnv(
            address, "maze", num_envs=4, width=16, height=16, streams=2, observations=("eye.rgb", "eye.depth")
        ) as maze,
    ):
        for env in (catch, maze):
            env.reset(seed=0)
        actions = {env: env.action_space.sample() for env in (catch, maze)}
        with ThreadPoolExecutor(1) as threads:
            is_over = threading.Event()
            viewer = threads.submit(lambda: asyncio.run(watch(page, is_over)))
            rounds, deadline_s = 0, time.monotonic() + TIMEOUT_S
            while scrapes(prometheus) < 2:  # rates need two; the first comes after some seconds
                assert time.monotonic() < deadline_s
                catch.step(actions[catch])
                maze.step(actions[maze])
                rounds += 1
                time.sleep(0.01)
            is_over.set()
        with grpc.insecure_channel(address) as channel, connection.Connection(channel) as stream:
            refusals = cause_errors(stream)
            counters = read_counters(stream)
            wait_for(prometheus, 'worldloom_requests_total{job="worldloom"}', counters["requests"])
            metrics = read_metrics(prometheus)
    # A step of maze is one of each of its two streams; the reset of an env is a first step.
    return Scraped(prometheus, page, 3 * (rounds + 1), 12 * (rounds + 1), refusals, viewer.result(), counters, metrics)


async def watch(page: str, is_over: threading.Event) -> int:
    """Watch two lanes until the steps are over, as a page does; return the number of pictures that came."""
    pictures = 0
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{page}/live", origin=page) as socket:
        await socket.send_json({"type": "subscribe", "topics": ["worlds"]})
        world = ""
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                pictures += 1
                size = int.from_bytes(message.data[:4], "little")
                header = json.loads(message.data[4 : 4 + size])
                if is_over.is_set():
                    break
                await socket.send_json({"type": "shown", "picture": header["picture"]})
            elif (text := json.loads(message.data))["type"] == "worlds" and text["changed"] and not world:
                world = text["changed"][0]["id"]
                views = [[world, lane, 0, "", "rgb"] for lane in range(2)]
                watched = {"type": "watch", "number": 1, "views": views, "size": 16, "rate": 30, "format": "raw"}
                await socket.send_json({**watched, "follow": None})
    return pictures


def cause_errors(stream: connection.Connection) -> int:
    """Ask for worlds that there are not; return how often."""
    for _ in range(3):
        with pytest.raises(error.DmEnvRpcError, match="no world"):
            stream.send(dm_env_rpc_pb2.JoinWorldRequest(world_name="nowhere"))
    family = {"family": tensor_utils.pack_tensor("nothing")}
    with pytest.raises(error.DmEnvRpcError, match="nothing"):
        stream.send(dm_env_rpc_pb2.CreateWorldRequest(settings=family))
    return 4


def read_counters(stream: connection.Connection) -> dict[str, float]:
    """Counters, as any client may read them. Requests are read last, as reading is a request."""
    names = [f"frames.{output}" for output in ("rgb", "gray", "depth", "segmentation")]
    names += ["steps", "lane_steps", "ticks", "draws", "views", "worlds", "lanes", "streams", "refusals"]
    properties = PropertiesExtension(stream)
    return {name: float(properties[f"counters.{name}"]) for name in [*names, "memory_bytes", "requests"]}


def scrapes(prometheus: str) -> float:
    """The number of scrapes that found steps so far."""
    found = query(prometheus, 'count_over_time(worldloom_steps_total{job="worldloom"}[1m])')
    return float(found[0]["value"][1]) if found else 0.0


def wait_for(prometheus: str, metric: str, value: float) -> None:
    """Wait until Prometheus has this value of a metric: a scrape has all metrics of one moment."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (found := query(prometheus, metric)) == [] or float(found[0]["value"][1]) < value:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.1)


def read_metrics(prometheus: str) -> dict[str, float]:
    """The metrics of the last scrape by name and label, without those of which server it is."""
    found = {}
    for one in query(prometheus, '{job="worldloom"}'):
        labels = one["metric"]
        name = labels.pop("__name__").removeprefix("worldloom_")
        rest = [value for label, value in labels.items() if label not in ("instance", "job")]
        found[".".join([name, *rest])] = float(one["value"][1])
    return found


def test_numbers_are_those_of_the_clients(scraped: Scraped) -> None:
    counters, metrics = scraped.counters, scraped.metrics
    assert (counters["steps"], counters["lane_steps"]) == (scraped.steps, scraped.lane_steps)
    assert counters["refusals"] == scraped.refusals
    totals = ("steps", "lane_steps", "ticks", "views", "requests")
    assert {name: metrics[f"{name}_total"] for name in totals} == {name: counters[name] for name in totals}
    # The last picture for the viewer, who has left, may have been drawn by itself since the counters were read.
    assert counters["draws"] <= metrics["draws_total"] <= counters["draws"] + 1
    gauges = ("worlds", "lanes", "streams", "memory_bytes")
    assert {name: metrics[name] for name in gauges} == {name: counters[name] for name in gauges}
    for output in ("rgb", "gray", "depth", "segmentation"):
        assert metrics[f"frames_total.{output}"] == counters[f"frames.{output}"]
    codes = {name: value for name, value in metrics.items() if name.startswith("refusals_total") and value}
    assert codes == {"refusals_total.NOT_FOUND": 3, "refusals_total.INVALID_ARGUMENT": 1}


def test_histograms_have_every_tick(scraped: Scraped) -> None:
    counters, metrics = scraped.counters, scraped.metrics
    assert metrics["tick_seconds_count"] == metrics["batch_steps_count"] == counters["ticks"]
    assert metrics["tick_seconds_bucket.+Inf"] == metrics["tick_seconds_bucket.10.0"] == counters["ticks"]
    assert metrics["batch_steps_sum"] == counters["steps"]
    # One step of catch and two of maze are answered in one tick or several, never more in one.
    assert metrics["batch_steps_bucket.2.0"] == metrics["batch_steps_bucket.8192.0"] == counters["ticks"]
    work_s = sum(value for name, value in metrics.items() if name.startswith("stage_seconds_total"))
    assert 0 < metrics["tick_seconds_sum"] < work_s - metrics["stage_seconds_total.wait"]


def test_pictures_for_viewers_are_counted(scraped: Scraped) -> None:
    # The viewer leaves after one of them, with one more under way at most: it says of each that it was shown.
    assert scraped.pictures > 5
    assert scraped.pictures <= scraped.metrics["live_pictures_total"] <= scraped.pictures + 1
    assert scraped.metrics["live_tiles_total"] == 2 * scraped.metrics["live_pictures_total"]
    assert scraped.metrics["live_viewers"] == 0


def test_promtool_finds_nothing_wrong_with_the_text(scraped: Scraped) -> None:
    text = get(f"{scraped.page}/metrics")
    assert "worldloom_tick_seconds_bucket" in text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_query_of_the_dashboard_finds_data(scraped: Scraped) -> None:
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 50
    for variable, value in (("$job", "worldloom"), ("$instance", ".+"), ("$__rate_interval", "1m")):
        queries = [text.replace(variable, value) for text in queries]
    assert not any("$" in text for text in queries)
    assert [text for text in queries if not has_data(scraped.prometheus, text)] == []


def test_the_queries_of_the_page_find_data(scraped: Scraped) -> None:
    blocks = re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)
    queries = [text for block in blocks for text in block.replace("\n  ", " ").splitlines()]
    assert len(queries) >= 8
    assert [text for text in queries if not has_data(scraped.prometheus, text)] == []


def test_a_server_with_tls_and_a_token_is_scraped(scraped: Scraped) -> None:
    (up,) = query(scraped.prometheus, 'up{job="secure"}')
    assert up["value"][1] == "1"
    (ready,) = query(scraped.prometheus, 'worldloom_ready{job="secure"}')
    assert ready["value"][1] == "1"


def test_the_variables_of_the_dashboard_have_values(scraped: Scraped) -> None:
    variables = [one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert len(variables) == 2
    for definition in variables:
        found = re.fullmatch(r"label_values\((\w+)(?:{.*})?, (\w+)\)", definition)
        assert found
        values = {one["metric"][found[2]] for one in query(scraped.prometheus, f"count by ({found[2]}) ({found[1]})")}
        assert len(values) == 2  # servers, each with a job of its own


def test_alerts_find_data_and_none_fires(scraped: Scraped) -> None:
    groups = json.loads(get(f"{scraped.prometheus}/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        assert (rule["health"], rule["state"] == "firing") == ("ok", False), rule
        compared = COMPARISON.sub("", rule["query"])
        assert compared != rule["query"]
        assert has_data(scraped.prometheus, compared), compared
    assert len(rules) == len(yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"])


def test_the_health_check_of_the_container_works(scraped: Scraped) -> None:
    *_, program = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["worldloom"]["healthcheck"]["test"]
    for page, code in ((scraped.page, 0), (scraped.prometheus, 1)):  # Prometheus has no such path
        here = program.replace("http://127.0.0.1:9080", page)
        done = subprocess.run([sys.executable, "-c", here], capture_output=True, timeout=60)
        assert done.returncode == code, done.stderr
