/**
 * The tab of the server: rates, latencies, memory and refusals over the last minutes, of one server or the sum of all.
 */

import { LineChart, ShareChart } from "./charts.js";
import { byId, bytes, duration, el, milliseconds, number, plural, reconcile, setOptions, setText } from "./dom.js";
import { SPAN_S, namesIn, rates, sumSamples } from "./series.js";

const perSecond = (value) => `${number(value)}/s`;
const percent = (value) => `${number(Math.round(1000 * value) / 10)} %`;

export class StatsTab {
  /** @param {import("./live.js").Server[]} servers */
  constructor(servers) {
    this.servers = servers;
    this.isActive = false;
    this.charts = {
      frames: new LineChart("Frames a second", perSecond),
      steps: new LineChart("Steps a second", perSecond),
      batch: new LineChart("Steps in a tick, mean", number),
      tick: new LineChart("Time of a tick", milliseconds),
      stages: new ShareChart("Share of each stage", percent),
      waiting: new LineChart("Requests that wait, and streams", number),
      memory: new LineChart("Memory", bytes),
      refusals: new LineChart("Refusals a second", perSecond),
      viewers: new LineChart("Pictures for viewers", perSecond),
    };
    byId("stats-charts").append(...Object.values(this.charts).map((chart) => chart.element));
    byId("stats-choice").hidden = servers.length < 2;
    setOptions(byId("stats-server"), [["", "All, summed"], ...servers.map((server) => [String(server.index), server.name])]);
    byId("stats-server").addEventListener("input", () => this.update());
    this._makeTable();
    for (const server of servers)
      for (const event of ["stats", "state"]) server.on(event, () => this._plan());
  }

  setActive(isActive) {
    this.isActive = isActive;
    if (isActive) this.update();
  }

  /** Update once for the events of all servers that come together. */
  _plan() {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this.update(), 50);
  }

  update() {
    if (!this.isActive) return;
    const chosen = byId("stats-server").value;
    const servers = this.servers.filter((server) => !chosen || String(server.index) === chosen);
    const all = sumSamples(servers.map((server) => server.samples));
    const end = all.at(-1)?.time ?? 0;
    const samples = all.filter((sample) => sample.time > end - SPAN_S);
    this._describe(samples.at(-1), samples.length);
    if (samples.length) this._draw(samples);
    this._fillTable();
  }

  _draw(samples) {
    const { charts } = this;
    const times = samples.map((sample) => sample.time);
    const last = samples.at(-1);
    const series = (name, value) => ({ name, values: samples.map(value) });
    const rate = (name, count) => ({ name, values: rates(samples, count) });
    charts.frames.update(times, namesIn(samples, "frames").map((name) => rate(name, (sample) => sample.frames[name] ?? 0)));
    charts.steps.update(times, [rate("lane steps", (sample) => sample.lane_steps), rate("steps", (sample) => sample.steps), rate("ticks", (sample) => sample.ticks)]);
    charts.batch.update(times, [series("steps in a tick", (sample) => sample.mean_batch)]);
    charts.tick.update(times, ["p50", "p95", "p99"].map((name) => series(name, (sample) => sample.tick_ms?.[name] ?? NaN)));
    charts.stages.update(times, namesIn(samples, "stages").map((name) => series(name, (sample) => sample.stages[name] ?? 0)), "Of the engine's time; “wait” is time in which it had nothing to do.");
    charts.waiting.update(times, [series("waiting requests", (sample) => sample.waiting), series("streams", (sample) => sample.streams)]);
    const limit = last.max_memory_bytes ? `At most ${bytes(last.max_memory_bytes)} for worlds and replies.` : "";
    charts.memory.update(
      times,
      [series("process", (sample) => sample.process_bytes), series("worlds and replies", (sample) => sample.memory_bytes), series("shared with clients", (sample) => sample.shared_bytes)],
      limit,
    );
    const codes = namesIn(samples, "refusals");
    charts.refusals.update(times, codes.map((code) => rate(code, (sample) => sample.refusals[code] ?? 0)), codes.length ? "" : "None in these minutes.");
    charts.viewers.update(
      times,
      [rate("tiles", (sample) => sample.tiles), rate("pictures", (sample) => sample.pictures), rate("late pictures", (sample) => sample.late_pictures)],
      `${plural(last.viewers ?? 0, "viewer")} now.`,
    );
  }

  _describe(last, count) {
    const words = last
      ? [plural(last.worlds, "world"), plural(last.lanes, "lane"), plural(last.streams, "stream"), plural(last.trials, "trial"), `${number(last.lane_steps / (last.seconds || 1))} lane steps a second`]
      : ["No samples yet: the server sends one a second."];
    setText(byId("stats-status"), words.join(" · ") + (last && count < 60 ? ` · ${duration(count)} of history` : ""));
  }

  _makeTable() {
    const heads = ["Server", "Connection", "Version", "Renderer", "Worlds", "Lanes", "Frames/s", "Lane steps/s", "Tick p99", "Memory", "Viewers"];
    this._rows = el("tbody");
    byId("stats-servers").append(
      el("h3", { text: this.servers.length > 1 ? "Servers" : "This server" }),
      el(
        "div",
        { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Table of servers" },
        el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })))), this._rows),
      ),
    );
  }

  _fillTable() {
    reconcile(
      this._rows,
      this.servers,
      (server) => String(server.index),
      () => el("tr", {}, el("th", { scope: "row" }), ...Array.from({ length: 10 }, () => el("td"))),
      (row, server) => cellsOf(server).forEach((text, index) => setText(row.children[index], text)),
    );
  }
}

function cellsOf(server) {
  const { hello } = server;
  const last = server.isOpen ? server.samples.at(-1) : null;
  const state = server.isOpen ? "connected" : server.problem || "not connected";
  const about = [server.name, state, hello?.version ?? "–", hello ? [hello.renderer, hello.device].filter(Boolean).join(", ") : "–"];
  if (!last) return [...about, ...Array(7).fill("–")];
  const rate = (count) => number(count / (last.seconds || 1));
  const frames = Object.values(last.frames).reduce((sum, count) => sum + count, 0);
  const p99 = last.tick_ms ? milliseconds(last.tick_ms.p99) : "–";
  return [...about, number(last.worlds), number(last.lanes), rate(frames), rate(last.lane_steps), p99, bytes(last.process_bytes), number(last.viewers)];
}
