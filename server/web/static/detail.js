/**
 * The large view of one lane: its cameras and outputs, rewards, actions and settings, in a dialog.
 */

import { RewardCurve } from "./curve.js";
import { byId, el, number, plural, setOptions, setText, store, stored } from "./dom.js";
import { fillActions, fillDepthScale, fillFacts, fillLabels, joinedOf, settingsOf } from "./facts.js";
import { paintLater } from "./pictures.js";
import { FilmRecorder, savePng } from "./recorder.js";
import { STATE_WORDS } from "./tiles.js";

/** Weight of a new frame in the range of the depth scale when that shrinks: it grows at once. */
const SHRINK = 0.1;

/**
 * The lane that is shown, and how.
 * @typedef {{server: number, world: string, lane: number, agent: number, camera: string, output: string}} Target
 */

export class DetailView {
  /**
   * @param {import("./live.js").Server[]} servers
   * @param {(target: Target|null) => void} go changes the address of the page, from which `show` or `close` follows
   */
  constructor(servers, go) {
    this.servers = servers;
    this.go = go;
    this.dialog = byId("detail");
    /** @type {Target|null} */
    this.target = null;
    this.isActive = this.isPaused = false;
    this._curve = new RewardCurve(byId("detail-curve"), byId("detail-episodes"));
    this._film = new FilmRecorder(byId("detail-film"), (text) => setText(byId("detail-message"), text));
    /** @type {{camera: string, output: string, figure: any, canvas: HTMLCanvasElement, range: any}[]} */
    this._views = [];
    this._last = { episode: -1, step: 0 };
    /** What the last picture said of the lane. */
    this._words = "";
    this._listen();
    for (const server of servers) for (const event of ["worlds", "state"]) server.on(event, () => this._refresh());
  }

  get server() {
    return this.target ? this.servers[this.target.server] : undefined;
  }

  get world() {
    return this.server?.worlds.get(this.target?.world ?? "");
  }

  /** Show a lane, or the one that is shown in another way. @param {Target} target */
  show(target) {
    const old = this.target;
    const isSame = old && old.server === target.server && old.world === target.world && old.lane === target.lane && old.agent === target.agent;
    this.target = target;
    if (!isSame) {
      this._curve.clear();
      this._film.stop();
      this._words = "";
      for (const id of ["detail-actions", "detail-settings", "detail-joined"]) byId(id).replaceChildren();
      setText(byId("detail-message"), "");
    }
    if (!this.dialog.open) {
      this.dialog.showModal();
      this._body.focus(); // where the arrow keys change lanes
    }
    this._refresh();
  }

  get _body() {
    return this.dialog.querySelector(".detail-body");
  }

  close() {
    this._film.stop();
    this.target = null;
    if (this.dialog.open) this.dialog.close();
  }

  setActive(isActive) {
    this.isActive = isActive;
    if (isActive) this._watch();
    else this._unwatch();
  }

  _unwatch() {
    this._watched = "";
    for (const server of this.servers) server.watch(null);
  }

  _listen() {
    const change = (id, name) => byId(id).addEventListener("change", () => this._change({ [name]: byId(id).value }));
    change("detail-camera", "camera");
    change("detail-output", "output");
    byId("detail-agent").addEventListener("change", () => this._change({ agent: Number(byId("detail-agent").value) }));
    byId("detail-lane").addEventListener("change", () => this._goToLane(Number(byId("detail-lane").value)));
    byId("detail-previous").addEventListener("click", () => this._goToLane(this.target.lane - 1));
    byId("detail-next").addEventListener("click", () => this._goToLane(this.target.lane + 1));
    byId("detail-close").addEventListener("click", () => this.go(null));
    for (const id of ["detail-size", "detail-rate"]) {
      byId(id).value = stored(id, byId(id).value);
      byId(id).addEventListener("change", () => {
        store(id, byId(id).value);
        this._film.stop();
        this._watch();
      });
    }
    byId("detail-all").addEventListener("change", () => this._refresh());
    byId("detail-pause").addEventListener("click", () => this._pause(!this.isPaused));
    byId("detail-png").addEventListener("click", () => savePng(this._main.canvas, this._fileName()));
    byId("detail-film").addEventListener("click", () => {
      if (this._film.isRecording) this._film.stop();
      else this._film.start(this._main.canvas, this._fileName());
    });
    this.dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.go(null);
    });
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.go(null));
    this.dialog.addEventListener("keydown", (event) => {
      if (event.target.closest("input, select") || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "ArrowLeft") this._goToLane(this.target.lane - 1);
      else if (event.key === "ArrowRight") this._goToLane(this.target.lane + 1);
    });
  }

  _change(change) {
    this._film.stop();
    this.go({ .../** @type {Target} */ (this.target), ...change });
  }

  _goToLane(lane) {
    const { world, target } = this;
    if (!world || !target || !Number.isInteger(lane)) return;
    const chosen = Math.min(Math.max(lane, 0), world.lanes - 1);
    if (chosen !== target.lane) this._change({ lane: chosen });
    else byId("detail-lane").value = String(chosen);
  }

  /** Let the buttons lead to the lanes that there are; a button that has the focus gives it away before it is disabled. */
  _offerLanes(hasPrevious, hasNext) {
    for (const [id, isOffered] of [["detail-previous", hasPrevious], ["detail-next", hasNext]]) {
      if (!isOffered && document.activeElement === byId(id)) this._body.focus();
      byId(id).disabled = !isOffered;
    }
  }

  _pause(isPaused) {
    this.isPaused = isPaused;
    byId("detail-pause").setAttribute("aria-pressed", String(isPaused));
    setText(byId("detail-pause"), isPaused ? "Go on" : "Pause");
    this._watch();
  }

  get _main() {
    return this._views.find((view) => view.figure.classList.contains("main")) ?? this._views[0];
  }

  _fileName() {
    const { world, lane } = /** @type {Target} */ (this.target);
    const { camera, output } = this._main;
    return `${world}-lane${lane}-${camera}-${output}-episode${this._last.episode}-step${this._last.step}`;
  }

  /** Write what is known of the world, and watch what has been chosen. */
  _refresh() {
    const { target, world } = this;
    if (!target) return;
    setText(byId("detail-title"), `${target.world} lane ${target.lane}`);
    const isLost = this.server?.isLost ?? false;
    this.dialog.classList.toggle("is-lost", isLost);
    const seen = this._words ? " What you see was its last picture." : "";
    setText(byId("detail-lost"), isLost ? `Not live. ${this.server?.whyLost}.${seen}` : "");
    if (!world) {
      const isKnown = this.server?.hasWorlds;
      setText(byId("detail-state"), isKnown ? "This world is gone. What you see was its last picture." : "Waiting for the server.");
      this._offerLanes(false, false);
      if (this.isActive) this._unwatch();
      return;
    }
    setText(byId("detail-lanes"), `of ${number(world.lanes)}`);
    byId("detail-lane").value = String(target.lane);
    byId("detail-lane").max = String(world.lanes - 1);
    this._offerLanes(target.lane > 0, target.lane < world.lanes - 1);
    byId("detail-agent-field").hidden = world.agents < 2;
    setOptions(byId("detail-agent"), Array.from({ length: world.agents }, (_, agent) => [String(agent), String(agent)]));
    byId("detail-agent").value = String(target.agent);
    this._choose(world, target);
    this._showState();
    fillFacts(byId("detail-settings"), settingsOf(world));
    fillFacts(byId("detail-joined"), joinedOf(world));
    if (!byId("detail-actions").children.length) fillActions(byId("detail-actions"), world.actions, {});
    this._watch();
  }

  /** Make a figure for each view that is shown: the chosen one, and all others if they are wanted. */
  _choose(world, target) {
    const camera = world.cameras.find((one) => one.name === target.camera) ?? world.cameras[0];
    for (const id of ["detail-camera", "detail-output", "detail-all", "detail-png", "detail-film"]) byId(id).disabled = !camera;
    if (!camera) {
      this._views = [];
      byId("detail-pictures").replaceChildren();
      byId("detail-legend").replaceChildren();
      setText(byId("detail-state"), "This world has no camera.");
      return;
    }
    const output = camera.outputs.includes(target.output) ? target.output : camera.outputs[0];
    setOptions(byId("detail-camera"), world.cameras.map((one) => [one.name, one.name]));
    setOptions(byId("detail-output"), camera.outputs.map((name) => [name, name]));
    byId("detail-camera").value = camera.name;
    byId("detail-output").value = output;
    const all = world.cameras.flatMap((one) => one.outputs.map((name) => ({ camera: one.name, output: name })));
    const wanted = byId("detail-all").checked ? all : all.filter((view) => view.camera === camera.name && view.output === output);
    const key = ({ camera: one, output: name }) => `${one}.${name}`;
    if (wanted.map(key).join() !== this._views.map(key).join()) {
      this._views = wanted.map((view) => ({ ...view, range: null, ...this._makeFigure(view) }));
      byId("detail-pictures").replaceChildren(...this._views.map((view) => view.figure));
    }
    for (const view of this._views) view.figure.classList.toggle("main", view.camera === camera.name && view.output === output);
    for (const [kind, place] of [["segmentation", ".labels"], ["depth", ".scale"]])
      if (kind !== output) byId("detail-legend").querySelector(place)?.remove();
  }

  _makeFigure({ camera, output }) {
    const canvas = el("canvas", { width: 256, height: 256, role: "img", "aria-label": `${camera}, ${output}` });
    const choose = el("button", { type: "button", class: "quiet", text: `${camera}.${output}` });
    choose.addEventListener("click", () => this._change({ camera, output }));
    return { canvas, figure: el("figure", {}, canvas, el("figcaption", {}, choose)) };
  }

  _watch() {
    const { target, world, server, _views: views } = this;
    if (!this.isActive) return;
    if (!target || !world || !server || this.isPaused) return this._unwatch();
    const shown = views.slice(0, server.hello?.max_tiles ?? 256);
    const most = Math.floor(Math.sqrt((server.hello?.max_pixels ?? Infinity) / Math.max(1, shown.length)));
    const size = Math.min(Number(byId("detail-size").value), server.hello?.max_size ?? 512, most);
    const request = {
      views: shown.map((view) => [target.world, target.lane, target.agent, view.camera, view.output]),
      size,
      rate: Math.min(Number(byId("detail-rate").value), server.hello?.max_rate ?? 30),
      format: "raw",
      follow: [target.world, target.lane, target.agent],
    };
    const what = JSON.stringify(request);
    if (what === this._watched) return;
    this._watched = what;
    const show = (picture, done) => paintLater(this._paint(picture, views, what), done);
    server.watch({ ...request, show, takeSteps: (followed) => this._takeSteps(followed) });
  }

  *_paint(picture, views, what) {
    if (what !== this._watched || !this.target) return;
    const { server, world } = this;
    for (const frame of picture.frames) {
      const view = views[frame.view];
      if (frame.offset >= 0) {
        const found = picture.paint(view.canvas, frame, view.output, view.range);
        if (view.output === "depth") view.range = widen(view.range, found);
        if (view === this._main) this._explain(view, found, world);
      }
      if (view === this._main) this._describe(server.hello.states[frame.state], frame, picture.isLate);
      yield;
    }
    if (this._film.isRecording) this._film.add(this._main.canvas);
  }

  _takeSteps(followed) {
    this._curve.take(followed);
    this._curve.draw();
    if (this.world) fillActions(byId("detail-actions"), this.world.actions, followed.actions);
  }

  _explain(view, found, world) {
    if (view.output === "segmentation") fillLabels(byId("detail-legend"), world?.labels ?? {}, found);
    else if (view.output === "depth") fillDepthScale(byId("detail-legend"), view.range);
  }

  /** Write what is known of the lane, as of now or as of the last picture. */
  _showState() {
    if (this._words) setText(byId("detail-state"), this.server?.isOpen ? this._words : `Last seen: ${this._words}`);
  }

  _describe(state, frame, isLate) {
    if (frame.offset >= 0) this._last = frame;
    const where = frame.episode >= 0 ? `, episode ${frame.episode}, step ${number(frame.step)}` : "";
    const hints = {
      not_begun: "; there is a picture once its first episode begins",
      not_drawable: "; it has no such camera, or drawing failed",
      gone: "; the world, the lane or the agent is no longer there",
    };
    this._words = `${STATE_WORDS[state] ?? state}${where}${hints[state] ?? ""}${isLate ? " · late: the server is busy" : ""}`;
    this._showState();
    this._main.canvas.setAttribute("aria-label", `${this._main.camera}, ${this._main.output}, ${plural(this._main.canvas.width, "pixel")} wide`);
  }
}

/** Return a range of depth that covers the old one and the new, and shrinks slowly, so that colours do not flicker. */
function widen(old, { low, high }) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return old ?? { low: 0, high: 1 };
  if (!old) return { low, high };
  return {
    low: low < old.low ? low : old.low + SHRINK * (low - old.low),
    high: high > old.high ? high : old.high + SHRINK * (high - old.high),
  };
}
