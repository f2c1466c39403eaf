/**
 * Charts of the last minutes: lines, or shares that fill the height. Each has its latest values in words beside it and in
 * its text alternative; the pointer shows those of another moment.
 */

import { bytes, el, setAttribute, setText, svg } from "./dom.js";
import { SPAN_S } from "./series.js";

const HEIGHT = 150;
const BOTTOM = 18;
const TOP = 8;

/** A chart over time. */
class Chart {
  /**
   * @param {string} title
   * @param {(value: number) => string} format writes a value with its unit
   */
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.image = svg("svg", { role: "img", height: HEIGHT });
    this.legend = el("ul", { class: "legend" });
    this.when = el("span", { class: "muted when" });
    this.note = el("p", { class: "muted note" });
    this.element = el(
      "figure",
      { class: "card chart" },
      el("figcaption", {}, el("h3", { text: title }), this.when),
      this.image,
      this.legend,
      this.note,
    );
    this.width = 300;
    this.times = [];
    /** @type {import("./series.js").Series[]} */
    this.series = [];
    this.pointed = -1;
    new ResizeObserver(([entry]) => this._resize(entry.contentRect.width)).observe(this.element);
    this.image.addEventListener("pointermove", (event) => this._point(event.offsetX));
    this.image.addEventListener("pointerleave", () => this._point(-1));
  }

  /** Draw these series; `note` is a line of words below. */
  update(times, series, note = "") {
    this.times = times;
    this.series = series;
    setText(this.note, note);
    this.draw();
  }

  draw() {
    const end = this.times.at(-1) ?? 0;
    this.x = (time) => this.width * (1 - (end - time) / SPAN_S);
    const most = this._most();
    this.y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / most;
    const levels = [0, most / 2, most];
    this.image.replaceChildren(...this._grid(levels), ...this._shapes(), ...this._pointer(), ...this._words(levels));
    this._describe();
  }

  _resize(width) {
    if (!width || width === this.width) return;
    this.width = width;
    setAttribute(this.image, "width", String(width));
    this.draw();
  }

  _point(x) {
    const nearest = x < 0 ? -1 : this.times.findIndex((time) => this.x(time) >= x);
    if (nearest === this.pointed) return;
    this.pointed = nearest;
    this.draw();
  }

  _grid(levels) {
    return levels.map((level) => svg("line", { class: "grid", x1: 0, x2: this.width, y1: this.y(level), y2: this.y(level) }));
  }

  _words(levels) {
    const parts = levels.slice(1).map((level) => svg("text", { class: "tick", x: 2, y: this.y(level) + 12, text: this.format(level) }));
    const minutes = this.width < 220 ? [4, 2] : [4, 3, 2, 1];
    for (const minute of minutes)
      parts.push(svg("text", { class: "tick", x: this.width * (1 - (60 * minute) / SPAN_S), y: HEIGHT - 4, "text-anchor": "middle", text: `−${minute} min` }));
    parts.push(svg("text", { class: "tick", x: this.width, y: HEIGHT - 4, "text-anchor": "end", text: "now" }));
    return parts;
  }

  _pointer() {
    if (this.pointed < 0 || this.pointed >= this.times.length) return [];
    const x = this.x(this.times[this.pointed]);
    return [svg("line", { class: "pointer", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM })];
  }

  _describe() {
    const isPast = this.pointed >= 0 && this.pointed < this.times.length - 1;
    const index = isPast ? this.pointed : this.times.length - 1;
    const words = this.series.map((one) => (Number.isFinite(one.values[index]) ? this.format(one.values[index]) : "–"));
    setText(this.when, isPast ? `${Math.round((this.times.at(-1) ?? 0) - this.times[index])} s ago` : "");
    while (this.legend.children.length > this.series.length) this.legend.lastChild.remove();
    this.series.forEach((one, order) => {
      const item = this.legend.children[order] ?? this.legend.appendChild(this._legendItem(order));
      setText(item.children[1], one.name);
      setText(item.children[2], words[order]);
    });
    if (isPast) return;
    const values = this.series.map((one, order) => `${one.name} ${words[order]}`).join(", ");
    setAttribute(this.image, "aria-label", `${this.title}, last 5 minutes. Now: ${values || "nothing"}`);
  }

  _legendItem(order) {
    const swatch = svg("svg", { class: `swatch ${this._swatchClass} s${order % 10}`, width: 18, height: 10, "aria-hidden": "true" });
    swatch.append(this._swatchClass === "line" ? svg("path", { d: "M0 5H18" }) : svg("rect", { width: 18, height: 10 }));
    return el("li", {}, swatch, el("span", { class: "name" }), el("b"));
  }
}

/** Lines from zero up to a round number above the greatest value. */
export class LineChart extends Chart {
  get _swatchClass() {
    return "line";
  }

  _most() {
    let most = 0;
    for (const one of this.series) for (const value of one.values) if (value > most) most = value;
    const unit = this.format === bytes ? 1024 ** Math.floor(Math.log(most || 1) / Math.log(1024)) : 1;
    return unit * roundUp(most / unit || 1);
  }

  _shapes() {
    return this.series.map((one, order) => svg("path", { class: `line s${order % 10}`, d: linePath(one.values, (i) => this.x(this.times[i]), this.y) }));
  }
}

/** Shares of a whole, one above the other; the series are what the shares are of. */
export class ShareChart extends Chart {
  get _swatchClass() {
    return "area";
  }

  update(times, series, note = "") {
    const totals = times.map((_, index) => series.reduce((sum, one) => sum + one.values[index], 0) || 1);
    super.update(times, series.map((one) => ({ name: one.name, values: one.values.map((value, index) => value / totals[index]) })), note);
  }

  _most() {
    return 1;
  }

  _shapes() {
    const base = this.times.map(() => 0);
    return this.series.map((one, order) => {
      const below = this.times.map((time, index) => `${this.x(time).toFixed(1)} ${this.y(base[index]).toFixed(1)}`).reverse();
      one.values.forEach((value, index) => (base[index] += value));
      const above = this.times.map((time, index) => `${this.x(time).toFixed(1)} ${this.y(base[index]).toFixed(1)}`);
      return svg("path", { class: `area s${order % 10}`, d: above.length ? `M${[...above, ...below].join("L")}Z` : "" });
    });
  }
}

/** Return the path of a line through values; where there is none, the line has a gap. */
export function linePath(values, x, y) {
  let path = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (!Number.isFinite(value)) isDown = false;
    else {
      path += `${isDown ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = true;
    }
  });
  return path;
}

/** Return the next number at least as great that is 1, 2 or 5 times a power of ten, or 4, 6 or 8 times. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.999999) ?? 10);
}
