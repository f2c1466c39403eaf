/**
 * The rewards of a followed lane: the return of the running episode step by step, and those of episodes that have ended.
 */

import { linePath, roundUp } from "./charts.js";
import { el, number, plural, precise, setAttribute, setText, svg } from "./dom.js";

const MAX_STEPS = 2000;
const MAX_EPISODES = 100;
const HEIGHT = 160;
const LAST = 2;

export class RewardCurve {
  /** @param {HTMLElement} place @param {HTMLElement} episodesPlace */
  constructor(place, episodesPlace) {
    this.image = svg("svg", { role: "img", class: "curve", height: HEIGHT });
    this.words = el("p", { class: "muted note" });
    this.list = el("ol", { class: "episodes" });
    place.append(this.image, this.words);
    episodesPlace.append(el("h3", { text: "Ended episodes" }), this.list);
    this.clear();
  }

  /** Forget everything: another lane is followed. */
  clear() {
    /** @type {{episode: number, step: number, total: number, isStart: boolean, isEnd: boolean}[]} */
    this.steps = [];
    this.episodes = [];
    this.dropped = 0;
    this._episode = -2;
    /** Number of the next step that the server has recorded. */
    this._next = 0;
    this.draw();
  }

  /** Take what a picture says of the steps since the last. */
  take({ first, steps, dropped }) {
    this.dropped += dropped;
    if (first !== this._next) this._episode = -2; // some are missing: nobody watched, or they were too many
    this._next = first + steps.length;
    for (const [episode, step, reward, stepType] of steps) {
      const isStart = episode !== this._episode;
      if (isStart) {
        this._episode = episode;
        this._total = 0;
        this._from = step;
      }
      this._total += reward;
      const isEnd = stepType === LAST;
      this.steps.push({ episode, step, total: this._total, isStart, isEnd });
      if (isEnd) {
        this.episodes.unshift({ episode, steps: step, total: this._total, from: this._from });
        this._episode = -2;
      }
    }
    this.steps.splice(0, this.steps.length - MAX_STEPS);
    this.episodes.splice(MAX_EPISODES);
  }

  draw() {
    const width = this.image.parentNode.clientWidth || 320;
    const totals = this.steps.map((one) => one.total);
    const high = roundUp(Math.max(1e-9, ...totals) === 1e-9 ? 1 : Math.max(...totals));
    const low = Math.min(0, ...totals) < 0 ? -roundUp(-Math.min(...totals)) : 0;
    const x = (index) => (width * (index + 0.5)) / Math.max(this.steps.length, 50);
    const y = (total) => 8 + ((HEIGHT - 16) * (high - total)) / (high - low);
    setAttribute(this.image, "width", String(width));
    const parts = [high, 0, low].map((level) => svg("line", { class: "grid", x1: 0, x2: width, y1: y(level), y2: y(level) }));
    const values = this.steps.flatMap(({ isStart, total }, index) => (index && isStart ? [NaN, total] : [total]));
    const places = this.steps.flatMap(({ isStart }, index) => (index && isStart ? [index, index] : [index]));
    parts.push(svg("path", { class: "line s0", d: linePath(values, (index) => x(places[index]), y) }));
    this.steps.forEach((one, index) => {
      if (!one.isEnd) return;
      parts.push(svg("line", { class: "end", x1: x(index), x2: x(index), y1: 8, y2: HEIGHT - 8 }));
      parts.push(svg("circle", { class: "end-point", cx: x(index), cy: y(one.total), r: 3 }));
    });
    for (const level of new Set([high, low])) parts.push(svg("text", { class: "tick", x: 2, y: y(level) + (level === high ? 12 : -3), text: precise(level) }));
    this.image.replaceChildren(...parts);
    this._describe();
  }

  _describe() {
    const last = this.steps.at(-1);
    const ends = this.episodes.map((one) => one.total);
    const mean = ends.length ? `; mean of ${plural(ends.length, "ended episode")} ${precise(ends.reduce((sum, total) => sum + total, 0) / ends.length)}` : "";
    const now = last ? `Episode ${last.episode}, step ${last.step}: return ${precise(last.total)}${mean}` : "No steps yet: the lane is followed from now on.";
    setText(this.words, now + (this.dropped ? `. ${number(this.dropped)} steps were too many to show.` : ""));
    setAttribute(this.image, "aria-label", `Return by step, with vertical lines at the ends of episodes. ${now}`);
    while (this.list.children.length > this.episodes.length) this.list.lastChild.remove();
    this.episodes.forEach((one, order) => {
      const item = this.list.children[order] ?? this.list.appendChild(el("li"));
      const part = one.from > 1 ? `, since step ${one.from}` : "";
      setText(item, `Episode ${one.episode}: ${precise(one.total)} in ${plural(one.steps, "step")}${part}`);
    });
    this.list.parentNode.hidden = !this.episodes.length;
  }
}
