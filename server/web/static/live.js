/**
 * A server as the page sees it: its socket, which connects again by itself, and what it has told.
 *
 * Events: "state" (connected, lost, or about to try again), "worlds", "stats", "trials", "play" (an answer to a request
 * to play or act) and "error".
 */

import { readPicture } from "./pictures.js";

const WAITS_S = [0.5, 1, 2, 4, 8];
/** A server, which sends statistics every few seconds at least, is taken for gone when it is silent for so long. */
const SILENCE_S = 15;
/** A connection that lasts so long is a sound one: after it the next attempt comes soon. */
const SOUND_S = 10;
const MAX_SAMPLES = 300;

const worker = new Worker("/static/sockets.js");
/** @type {Map<number, {take: (data: any) => void, lose: () => void}>} */
const sockets = new Map();
let socketCount = 0;

worker.addEventListener("message", ({ data: { id, data, closed } }) => {
  const socket = sockets.get(id);
  if (!closed) socket?.take(data);
  else if (sockets.delete(id)) socket?.lose();
});

/**
 * What is watched: `show` gets each picture, and calls `done` when it has painted it. `takeSteps` gets the steps of the
 * lane that is followed, each once: also those that come with a picture of other views of it, asked for before.
 * @typedef {{views: any[][], size: number, rate: number, format: string, follow: any[]|null,
 *   show: (picture: import("./pictures.js").Picture, done: () => void) => void,
 *   takeSteps?: (followed: any) => void}} WatchRequest
 */

/**
 * A server in the page's list. `problem` tells why it cannot be watched; with `retry_s` it will not be for so long.
 * @typedef {{name: string, path: string, problem?: string, retry_s?: number}} Entry
 */

export class Server {
  /** @param {Entry} entry @param {number} index */
  constructor(entry, index) {
    this.index = index;
    this.name = entry.name;
    this.path = entry.path;
    this.problem = entry.problem ?? "";
    /** @type {any} What it said when it was connected last. */
    this.hello = null;
    this.isOpen = false;
    /** Time of the next attempt to connect, in milliseconds of `performance.now`. */
    this.retryAt = 0;
    /** @type {Map<string, any>} */
    this.worlds = new Map();
    /** Whether the list of worlds has been complete since it was connected last. */
    this.hasWorlds = false;
    /** @type {any[]} */
    this.samples = [];
    /** @type {any} */
    this.trials = null;
    this._listeners = new Map();
    this._topics = ["worlds", "stats"];
    this._watchNumber = 0;
    /** @type {WatchRequest|null} */
    this._request = null;
    this._unseen = null;
    this._failures = 0;
    this._heardAt = this._openedAt = 0;
    /** Number of its socket at the worker; 0 if there is none. */
    this._socket = 0;
    this._connect();
    setInterval(() => this._checkSilence(), 1000);
    addEventListener("online", () => this.retry());
  }

  /** Whether there is no connection, after an attempt at least: what is seen of it is not live. */
  get isLost() {
    return !this.isOpen && this.retryAt > 0;
  }

  /** A sentence about a server that is lost, without a full stop. */
  get whyLost() {
    return `${this.name} is not connected: ${this.problem || "it does not answer"}`;
  }

  /** Call `listener` with what comes with each event of this name. */
  on(event, listener) {
    this._listeners.set(event, [...(this._listeners.get(event) ?? []), listener]);
  }

  /** Send a message; return whether there is a connection to send it over. */
  send(message) {
    if (!this.isOpen) return false;
    worker.postMessage({ id: this._socket, text: JSON.stringify(message) });
    return true;
  }

  /** Choose what is told from now on. */
  subscribe(topics) {
    if (topics.join() === this._topics.join()) return;
    this._topics = topics;
    this.send({ type: "subscribe", topics });
  }

  /** Watch these views instead of those before; nothing if null. @param {WatchRequest|null} request */
  watch(request) {
    if (!request && !this._request) return;
    this._request = request;
    this._sendWatch();
  }

  /** Try to connect now instead of at the time planned. */
  retry() {
    if (!this._socket) this._connect();
  }

  _emit(event, data) {
    for (const listener of this._listeners.get(event) ?? []) listener(data);
  }

  _sendWatch() {
    const { views, size, rate, format, follow } = this._request ?? { views: [], size: 8, rate: 1, format: "raw", follow: null };
    this._watchNumber += 1;
    this.send({ type: "watch", number: this._watchNumber, views, size, rate, format, follow });
  }

  _connect() {
    clearTimeout(this._timer);
    const url = new URL(`${this.path}/live`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const id = (this._socket = socketCount += 1);
    sockets.set(id, { take: (data) => id === this._socket && this._take(data), lose: () => id === this._socket && this._lose() });
    worker.postMessage({ id, url: url.href });
  }

  _take(data) {
    this._heardAt = performance.now();
    if (data instanceof ArrayBuffer) this._receivePicture(data);
    else this._receive(data);
  }

  _lose() {
    if (this.isOpen && performance.now() - this._openedAt > 1000 * SOUND_S) this._failures = 0;
    const wait_s = WAITS_S[Math.min(this._failures, WAITS_S.length - 1)] * (1 + 0.2 * Math.random());
    if (!this.isOpen) this._askWhy();
    this._socket = 0;
    this.isOpen = this.hasWorlds = false;
    this._failures += 1;
    this._planRetry(wait_s);
    this._emit("state");
  }

  _planRetry(wait_s) {
    clearTimeout(this._timer);
    this.retryAt = performance.now() + 1000 * wait_s;
    this._timer = setTimeout(() => this._connect(), 1000 * wait_s);
  }

  /** Take from the page's list why there is no connection: a socket that is refused does not tell. */
  async _askWhy() {
    const { problem = "", retry_s = 0 } = (await findEntries()).get(this.path) ?? {};
    if (this.isOpen) return;
    this.problem = problem;
    if (!this._socket && this.retryAt < performance.now() + 1000 * retry_s) this._planRetry(retry_s);
    this._emit("state");
  }

  _checkSilence() {
    if (!this.isOpen || performance.now() - this._heardAt < 1000 * SILENCE_S) return;
    worker.postMessage({ id: this._socket, close: true });
    this._lose();
  }

  _receive(message) {
    if (message.type === "hello") this._begin(message);
    else if (message.type === "worlds") this._takeWorlds(message);
    else if (message.type === "stats") this._takeSamples(message.samples);
    else if (message.type === "trials") {
      this.trials = message;
      this._emit("trials");
    } else if (message.type === "error" && message.about !== "play" && message.about !== "act") this._emit("error", message);
    else this._emit("play", message);
  }

  _begin(hello) {
    this.hello = hello;
    this.isOpen = true;
    this.problem = "";
    this._openedAt = performance.now();
    this._unseen = new Set(this.worlds.keys());
    this.send({ type: "subscribe", topics: this._topics });
    if (this._request) this._sendWatch();
    this._emit("state");
  }

  _takeWorlds({ changed, removed, is_complete }) {
    for (const world of changed) {
      this.worlds.set(world.id, world);
      this._unseen?.delete(world.id);
    }
    for (const id of removed) this.worlds.delete(id);
    if (!is_complete && this._unseen) return;
    for (const id of this._unseen ?? []) this.worlds.delete(id); // destroyed while the connection was lost
    this._unseen = null;
    this.hasWorlds = true;
    this._emit("worlds");
  }

  _takeSamples(samples) {
    const last = this.samples.at(-1)?.time ?? -Infinity; // the history comes again with each subscription
    this.samples.push(...samples.filter((sample) => sample.time > last));
    this.samples.splice(0, this.samples.length - MAX_SAMPLES);
    this._emit("stats");
  }

  _receivePicture(data) {
    const picture = readPicture(data);
    const request = this._request;
    const done = () => this.send({ type: "shown", picture: picture.number });
    if (picture.followed && request?.follow?.join() === picture.followed.lane.join()) request.takeSteps?.(picture.followed);
    if (request && picture.watch === this._watchNumber) request.show(picture, done);
    else done();
  }
}

/** @type {Promise<Map<string, Entry>>|null} The question that is under way: servers are often lost together. */
let asking = null;

/** Return the page's list of servers by path, empty if it cannot be reached; go to the sign-in page if the session is over. */
function findEntries() {
  asking ??= fetchEntries().catch(() => new Map()).finally(() => (asking = null));
  return asking;
}

async function fetchEntries() {
  const reply = await fetch("/api/servers", { redirect: "manual" });
  if (reply.status === 401 || reply.status === 403 || reply.type === "opaqueredirect") location.assign(`/login${location.hash}`);
  const entries = reply.ok ? (await reply.json()).servers : [];
  return new Map(entries.map((entry) => [entry.path, entry]));
}
