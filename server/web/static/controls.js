/**
 * Keys and buttons that move an agent: for the families in the box by name, for others a slider for each value of an action.
 */

import { el, precise } from "./dom.js";

/** Part of full speed at which keys turn an agent: full speed is too fast for people. */
const TURN = 0.5;

/**
 * Keys of a family: each key adds to a value of an action.
 * @typedef {{label: string, keys: string[], action: string, index: number, value: number}} Control
 */

/** @type {Record<string, {hint: string, stepsPerSecond: number, controls: Control[]}>} */
const SCHEMES = {
  move: {
    hint: "Arrow keys or W, A, S, D: forward, back and turn. Q and E: step to the left and right.",
    stepsPerSecond: 15,
    controls: [
      { label: "Step left", keys: ["KeyQ"], action: "move", index: 1, value: -1 },
      { label: "Forward", keys: ["ArrowUp", "KeyW"], action: "move", index: 0, value: 1 },
      { label: "Step right", keys: ["KeyE"], action: "move", index: 1, value: 1 },
      { label: "Turn left", keys: ["ArrowLeft", "KeyA"], action: "turn", index: 0, value: TURN },
      { label: "Back", keys: ["ArrowDown", "KeyS"], action: "move", index: 0, value: -1 },
      { label: "Turn right", keys: ["ArrowRight", "KeyD"], action: "turn", index: 0, value: -TURN },
    ],
  },
  paddle: {
    hint: "Left and right arrow keys, or A and D, move the paddle.",
    stepsPerSecond: 5,
    controls: [
      { label: "Left", keys: ["ArrowLeft", "KeyA"], action: "paddle", index: 0, value: -1 },
      { label: "Right", keys: ["ArrowRight", "KeyD"], action: "paddle", index: 0, value: 1 },
    ],
  },
  force: {
    hint: "Hold the left or right arrow key, or A or D, to push the cart.",
    stepsPerSecond: 15,
    controls: [
      { label: "Push left", keys: ["ArrowLeft", "KeyA"], action: "force", index: 0, value: -1 },
      { label: "Push right", keys: ["ArrowRight", "KeyD"], action: "force", index: 0, value: 1 },
    ],
  },
};

/** What the person at the keyboard does, as actions. */
export class Controls {
  /** @param {any[]} specs the actions of the world @param {HTMLElement} pads gets the buttons */
  constructor(specs, pads) {
    const scheme = SCHEMES[specs.map((spec) => spec.name).find((name) => name in SCHEMES) ?? ""];
    this.specs = specs;
    this.controls = scheme?.controls.filter((control) => specs.some((spec) => spec.name === control.action)) ?? [];
    this.hint = scheme?.hint ?? "This family has no keys of its own: set its actions with the sliders.";
    this.stepsPerSecond = scheme?.stepsPerSecond ?? 10;
    /** Controls that are held down, and those that were pressed since the last step, however briefly. */
    this._held = new Set();
    this._tapped = new Set();
    this._sliders = [];
    pads.replaceChildren(...(scheme ? this.controls.map((control) => this._pad(control)) : specs.flatMap((spec) => this._slidersOf(spec))));
    pads.dataset.scheme = !scheme ? "sliders" : this.controls.length > 2 ? "grid" : "pair";
  }

  /** Take a key that was pressed or released; return whether it is one of ours. */
  take(code, isDown) {
    const control = this.controls.find((one) => one.keys.includes(code));
    if (control) this._set(control, isDown);
    return Boolean(control);
  }

  /** Release everything: the keyboard is elsewhere. */
  release() {
    this._held.clear();
    this._tapped.clear();
  }

  /** Return the actions of the next step, in the shapes and the ranges of the world's. */
  takeActions() {
    const actions = {};
    for (const spec of this.specs) {
      const count = spec.shape.reduce((product, length) => product * length, 1);
      const values = Array(count).fill(0);
      for (const control of this.controls)
        if (control.action === spec.name && control.index < count && (this._held.has(control) || this._tapped.has(control))) values[control.index] += control.value;
      for (const { action, index, input } of this._sliders) if (action === spec.name) values[index] = Number(input.value);
      const limited = values.map((value, index) => limit(value, spec, index));
      actions[spec.name] = spec.shape.length ? limited : limited[0];
    }
    this._tapped.clear();
    return actions;
  }

  _set(control, isDown) {
    if (isDown) {
      this._held.add(control);
      this._tapped.add(control);
    } else this._held.delete(control);
  }

  _pad(control) {
    const pad = el("button", { type: "button", class: "pad", text: control.label });
    pad.addEventListener("pointerdown", (event) => {
      pad.setPointerCapture(event.pointerId);
      this._set(control, true);
    });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) pad.addEventListener(end, () => this._set(control, false));
    pad.addEventListener("click", (event) => event.detail === 0 && this._tapped.add(control)); // by the keyboard
    return pad;
  }

  _slidersOf(spec) {
    const count = spec.shape.reduce((product, length) => product * length, 1);
    return Array.from({ length: Math.min(count, 32) }, (_, index) => {
      const [low, high] = rangeOf(spec, index);
      const isWhole = spec.dtype.includes("int");
      const input = el("input", { type: "range", min: low, max: high, step: isWhole ? 1 : (high - low) / 100, value: limit(0, spec, index) });
      this._sliders.push({ action: spec.name, index, input });
      const name = count > 1 ? `${spec.name}[${index}]` : spec.name;
      return el("label", {}, `${name}, ${precise(low)} to ${precise(high)} `, input);
    });
  }
}

function rangeOf(spec, index) {
  const at = (bounds, otherwise) => {
    const list = [bounds ?? []].flat();
    const value = list[Math.min(index, list.length - 1)];
    return Number.isFinite(value) ? Math.max(-1e6, Math.min(1e6, value)) : otherwise;
  };
  return [at(spec.minimum, -1), at(spec.maximum, 1)];
}

function limit(value, spec, index) {
  const [low, high] = rangeOf(spec, index);
  return Math.min(Math.max(value, low), high);
}
