/**
 * The tab to play: a world of one's own, or a place in a trial, that the keyboard steps at a steady pace.
 */

import { Controls } from "./controls.js";
import { byId, el, plural, precise, setOptions, setText } from "./dom.js";
import { fillFacts } from "./facts.js";
import { paintLater } from "./pictures.js";

const SIZE = 256;
const RATE = 15;
const [FIRST, LAST] = [0, 2];
/** Time in which one sees how an episode ended, before the next begins. */
const PAUSE_MS = 900;
/** Time after which somebody whose action is not answered is told why. */
const PATIENCE_MS = 1500;

export class PlayTab {
  /** @param {import("./live.js").Server[]} servers */
  constructor(servers) {
    this.servers = servers;
    this.isActive = false;
    /** @type {import("./live.js").Server|null} */
    this.server = null;
    /** @type {any} What the server said of the world that is played. */
    this.playing = null;
    this._isAsking = false;
    this._number = 0;
    byId("play-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this._startWorld();
    });
    byId("play-new-trial").addEventListener("click", () => this.start(this._chosen, { trial: "" }));
    byId("play-server").addEventListener("input", () => this._offer());
    byId("play-stop").addEventListener("click", () => this._stop());
    for (const type of ["keydown", "keyup"]) document.addEventListener(type, (event) => this._key(event, type === "keydown"));
    addEventListener("blur", () => this._controls?.release());
    for (const server of servers) {
      server.on("play", (message) => this._receive(server, message));
      server.on("state", () => this._changeState(server));
    }
  }

  setActive(isActive) {
    this.isActive = isActive;
    this._controls?.release();
    if (isActive) this._offer();
    this._watch();
    if (isActive) this._go();
  }

  /** Ask a server for a world or a place in a trial. @param {any} request */
  start(server, request) {
    if (server !== this.server && (this.playing || this._isAsking)) this.server?.send({ type: "stop" });
    this._leave();
    this.server = server;
    this._isAsking = server.send({ type: "play", ...request });
    this._say(this._isAsking ? "Asking the server." : "There is no connection to the server.");
  }

  get _able() {
    return this.servers.filter((server) => server.hello?.can_control);
  }

  get _chosen() {
    return this.servers[Number(byId("play-server").value)] ?? this._able[0];
  }

  _offer() {
    const able = this._able;
    byId("play-server-field").hidden = able.length < 2;
    setOptions(byId("play-server"), able.map((server) => [String(server.index), server.name]));
    const hello = this._chosen?.hello;
    setOptions(byId("play-family"), (hello?.playable ?? []).map((name) => [name, name]));
    byId("play-trial").hidden = !hello?.has_trials;
  }

  _startWorld() {
    const settings = {};
    for (const part of byId("play-settings").value.split(",")) {
      const [name, ...rest] = part.split("=");
      const value = rest.join("=").trim();
      if (name.trim()) settings[name.trim()] = value !== "" && Number.isFinite(Number(value)) ? Number(value) : value;
    }
    const given = byId("play-seed").value.trim();
    const seed = given === "" ? Math.floor(Math.random() * 1e9) : Number(given);
    if (!Number.isSafeInteger(seed)) return this._say(`The seed is ${given}: expected a number up to ${Number.MAX_SAFE_INTEGER}.`, true);
    this.start(this._chosen, { family: byId("play-family").value, settings, seed });
  }

  _stop() {
    this.server?.send({ type: "stop" });
    this._leave();
    this._say("Stopped.");
    byId("play-family").focus();
  }

  _leave() {
    clearTimeout(this._timer);
    clearTimeout(this._patience);
    this.playing = null;
    this._isWaiting = this._isAsking = false;
    byId("play-stage").hidden = true;
    byId("play-form").hidden = false;
    this._watch();
  }

  _say(text, isError = false) {
    setText(byId("play-message"), text);
    byId("play-message").classList.toggle("error", isError);
  }

  _changeState(server) {
    if (this.isActive) this._offer();
    if (server.isOpen || server !== this.server || !(this.playing || this._isAsking)) return;
    this._leave();
    this._say("The connection was lost, and with it the game.", true);
  }

  _receive(server, message) {
    if (server !== this.server) return;
    if (message.type === "playing") this._begin(message);
    else if (message.type === "acted") this._take(message);
    else if (message.type === "play_ended" && this.playing) {
      this._leave();
      this._say(`The game is over: ${message.reason}`);
    } else if (message.type === "error") {
      if (message.about === "play") this._leave();
      this._say(message.text, true);
      this._isWaiting = false;
      this._dueAt = performance.now() + PAUSE_MS;
      this._go();
    }
  }

  _begin(playing) {
    this.playing = playing;
    this._isAsking = false;
    this._controls = new Controls(playing.actions, byId("play-pads"));
    Object.assign(this, { _return: 0, _steps: 0, _episodes: 0, _dueAt: performance.now(), _isWaiting: false });
    byId("play-episodes").replaceChildren();
    byId("play-banner").hidden = true;
    setText(byId("play-keys"), this._controls.hint);
    byId("play-form").hidden = true;
    byId("play-stage").hidden = false;
    this._say("");
    this._describe();
    byId("play-screen").focus();
    this._watch();
    this._go();
  }

  /** Step when it is time, and only when the last step has been answered. */
  _go() {
    clearTimeout(this._timer);
    if (!this.playing || !this.isActive || this._isWaiting) return;
    const wait_ms = this._dueAt - performance.now();
    if (wait_ms > 0) {
      this._timer = setTimeout(() => this._go(), wait_ms);
      return;
    }
    this._dueAt = Math.max(this._dueAt + 1000 / this._controls.stepsPerSecond, performance.now());
    this._isWaiting = true;
    byId("play-banner").hidden = true;
    this._say("");
    clearTimeout(this._patience);
    if (this.playing.trial) this._patience = setTimeout(() => this._isWaiting && this._say("Waiting for the other actors of the trial."), PATIENCE_MS);
    this._number += 1;
    this.server?.send({ type: "act", number: this._number, actions: this._controls.takeActions() });
  }

  _take(acted) {
    if (!this.playing || acted.number !== this._number) return;
    this._isWaiting = false;
    clearTimeout(this._patience);
    this._return += acted.reward;
    if (acted.step_type !== FIRST) this._steps += 1; // a reset is answered too, and is no step of the episode
    if (acted.step_type === LAST || acted.state === "ended") this._endEpisode();
    this._describe();
    this._go();
  }

  _endEpisode() {
    this._episodes += 1;
    const text = `Return ${precise(this._return)} in ${plural(this._steps, "step")}`;
    byId("play-episodes").prepend(el("li", { text }));
    setText(byId("play-banner"), `Episode over. ${text}`);
    byId("play-banner").hidden = false;
    this._say(`Episode over. ${text}`);
    Object.assign(this, { _return: 0, _steps: 0, _dueAt: performance.now() + PAUSE_MS });
    this._controls.release();
  }

  _describe() {
    const { world, trial, agent } = this.playing;
    fillFacts(byId("play-facts"), [
      ["World", world],
      ...(trial ? [["Trial", trial]] : []),
      ...(agent ? [["Agent", String(agent)]] : []),
      ["Step", String(this._steps)],
      ["Return", precise(Number(this._return.toFixed(4)))],
    ]);
  }

  _key(event, isDown) {
    if (!this.playing || !this.isActive || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target instanceof Element && event.target.closest("input, select, textarea")) return;
    if (this._controls.take(event.code, isDown)) event.preventDefault();
  }

  /** Watch the game while it is on the screen. */
  _watch() {
    const { playing, server } = this;
    if (!server || (!this._isWatching && !(this.isActive && playing))) return;
    this._isWatching = this.isActive && Boolean(playing);
    if (!this._isWatching) return server.watch(null);
    const show = (picture, done) => paintLater(this._paint(picture), done);
    const { max_rate: most = RATE, max_size: largest = SIZE } = server.hello;
    const views = [[playing.world, playing.lane, playing.agent, "", "rgb"]];
    server.watch({ views, size: Math.min(SIZE, largest), rate: Math.min(RATE, most), format: "raw", follow: null, show });
  }

  *_paint(picture) {
    const frame = picture.frames[0];
    if (frame && frame.offset >= 0) picture.paint(byId("play-canvas"), frame, "rgb");
    yield;
  }
}
