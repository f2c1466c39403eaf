/**
 * Tables and bars about a lane: settings of its world, who has joined, its last actions, and what colours mean.
 */

import { el, number, precise, reconcile, setText } from "./dom.js";
import { labelCss, paintDepthScale } from "./pictures.js";

/** Fill a table of names and values. @param {[string, string][]} rows */
export function fillFacts(place, rows) {
  const body = place.querySelector("tbody") ?? place.appendChild(el("table", { class: "facts" })).appendChild(el("tbody"));
  reconcile(
    body,
    rows,
    ([name]) => name,
    ([name]) => el("tr", {}, el("th", { scope: "row", text: name }), el("td")),
    (row, [, value]) => setText(row.lastChild, value),
  );
}

/** Return what a world was made with, as rows. */
export function settingsOf(world) {
  return [
    ["family", world.family],
    ...Object.entries(world.settings).map(([name, value]) => [name, String(value)]),
    ["seed", world.seed],
    ["lanes", number(world.lanes)],
    ...(world.is_vector ? [["autoreset", world.autoreset]] : []),
    ["stream", world.stream],
    ...(world.trial ? [["trial", world.trial]] : []),
  ].filter(([, value]) => value !== "");
}

/** Return who has joined a world, as rows. */
export function joinedOf(world) {
  const rows = world.joined.map((one) => [`agent ${one.agent}`, `${one.owner}, ${one.width}×${one.height} pixels`]);
  return rows.length ? rows : [["nobody", `of ${number(world.agents)} that can`]];
}

/**
 * Show values of actions as bars in their ranges.
 * @param {HTMLElement} place
 * @param {any[]} specs the world's actions
 * @param {Record<string, number[]>} values
 */
export function fillActions(place, specs, values) {
  const rows = specs.flatMap((spec) => {
    const list = values[spec.name] ?? [];
    const count = Math.max(list.length, 1);
    const rest = spec.shape.reduce((product, side) => product * side, 1) - list.length;
    const more = list.length > 1 && rest > 0 ? [{ name: `and ${number(rest)} more of ${spec.name}`, value: NaN, low: -1, high: 1 }] : [];
    const shown = Array.from({ length: count }, (_, index) => ({
      name: count > 1 ? `${spec.name}[${index}]` : spec.name,
      value: list[index] ?? NaN,
      low: bound(spec.minimum, index, -1),
      high: bound(spec.maximum, index, 1),
    }));
    return [...shown, ...more];
  });
  reconcile(place, rows, (row) => row.name, createBar, updateBar);
}

/** Return a bound of an element; where it is infinite or not given, one that a bar can have. */
function bound(bounds, index, otherwise) {
  const value = [bounds ?? []].flat()[index] ?? [bounds ?? []].flat().at(-1);
  return Number.isFinite(value) ? value : otherwise;
}

function createBar(row) {
  return el("div", { class: "action" }, el("span", { text: row.name }), el("span", { class: "track" }, el("span", { class: "fill" })), el("b"));
}

function updateBar(child, { value, low, high }) {
  const at = (level) => 100 * Math.min(1, Math.max(0, (level - low) / (high - low || 1)));
  const from = at(Math.min(Math.max(0, low), high));
  const to = Number.isFinite(value) ? at(value) : from;
  const { style } = child.children[1].firstChild;
  style.left = `${Math.min(from, to)}%`;
  style.width = `${Math.max(Math.abs(to - from), 0.8)}%`;
  setText(child.children[2], precise(value));
  child.title = `from ${precise(low)} to ${precise(high)}`;
}

/** Show the names of the labels, each with its colour and its share of the frame. */
export function fillLabels(place, labels, pixels) {
  const total = pixels.reduce((sum, count) => sum + count, 0) || 1;
  const numbers = [...new Set([...Object.keys(labels).map(Number), ...pixels.keys()])].filter((label) => label in labels || pixels[label]);
  const list = place.querySelector("ul") ?? place.appendChild(el("ul", { class: "labels" }));
  reconcile(
    list,
    numbers.slice(0, 64),
    String,
    (label) => {
      const swatch = el("span", { class: "square", "aria-hidden": "true" });
      swatch.style.background = labelCss(label);
      return el("li", {}, swatch, el("span", { text: `${label} ${labels[label] ?? ""}` }), el("b"));
    },
    (item, label) => setText(item.lastChild, `${number(Math.round((1000 * pixels[label]) / total) / 10)} %`),
  );
}

/** Show the scale of depth with its ends in metres. */
export function fillDepthScale(place, { low, high }) {
  let scale = place.querySelector(".scale");
  if (!scale) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    paintDepthScale(canvas);
    scale = place.appendChild(el("div", { class: "scale" }, el("b"), canvas, el("b")));
  }
  setText(scale.firstChild, `${precise(low)} m`);
  setText(scale.lastChild, `${precise(high)} m`);
}
