/**
 * Elements of the tiles near the screen: groups with a heading, rows, and a button with a canvas for each lane. Elements are
 * reused as rows scroll in and out; a row that has the focus stays.
 */

import { el, plural, setAttribute, setText } from "./dom.js";
import { FIRST_LANES } from "./groups.js";
import { GAP, HEADING_HEIGHT, SMALLEST_WITH_STEP } from "./grid.js";

/** Rows beyond the screen that have elements, so that scrolling does not meet empty space. */
const SPARE_ROWS = 2;

/** Words of the states, as people read them; "running" goes without saying, and "postponed" keeps the picture before. */
export const STATE_WORDS = {
  not_begun: "not begun",
  running: "running",
  ended: "ended",
  not_drawable: "not drawable",
  gone: "gone",
  postponed: "running",
};
const LOST_MARK = "⊘ not live";
const MARKS = { not_begun: "○ not begun", ended: "■ ended", not_drawable: "⚠ no picture", gone: "✕ gone" };

/**
 * A lane's button. Its short words are drawn by the style sheet: its name for screen readers says more.
 */
export class Tile {
  constructor() {
    this.canvas = el("canvas", { width: 8, height: 8 });
    this.mark = el("span", { class: "mark", "data-text": "" });
    this.caption = el("span", { class: "caption" });
    this.button = el("button", { type: "button", class: "tile" }, this.canvas, this.mark, this.caption);
    this.button.tile = this;
    /** @type {import("./groups.js").Group|null} */
    this.group = null;
    this.index = -1;
    this.world = null;
    this.lane = 0;
    this.key = "";
    this.isLost = false;
  }

  /** Show another lane. @param {import("./groups.js").Group} group @param {number} index @param {boolean} showsStep */
  bind(group, index, showsStep) {
    const item = group.item(index);
    const key = item ? `${group.server.index}/${item.world.id}/${item.lane}` : "";
    this.group = group;
    this.index = index;
    this.world = item?.world ?? null;
    this.showsStep = showsStep;
    const wasLost = this.isLost;
    this.isLost = !group.server.isOpen;
    if (key === this.key && item) {
      if (this.isLost !== wasLost) this._showState();
      return;
    }
    this.key = key;
    this.lane = item?.lane ?? 0;
    this.state = "";
    this.episode = this.step = -1;
    this.button.hidden = !item;
    setAttribute(this.canvas, "class", "blank");
    this.canvas.dataset.lane = key;
    setAttribute(this.caption, "data-text", item ? this._name() : "");
    this._showState();
  }

  /** Show no lane. */
  clear() {
    this.key = this.canvas.dataset.lane = "";
    this.world = null;
    this.button.hidden = true;
  }

  /** Take what a picture says of the lane; return whether its words have changed. */
  take(state, episode, step) {
    if (state === "postponed") {
      if (this.state !== "") return;
      state = "running";
    }
    const hasChanged = state !== this.state || episode !== this.episode;
    if (!hasChanged && step === this.step) return;
    Object.assign(this, { state, episode, step });
    setAttribute(this.caption, "data-text", this.showsStep && step > 0 ? `${this._name()} · ${step}` : this._name());
    if (hasChanged) this._showState();
  }

  /** Show the state in the mark, the border and the name. */
  _showState() {
    this.button.classList.toggle("is-lost", this.isLost);
    setAttribute(this.mark, "data-text", this.isLost && this.world ? LOST_MARK : (MARKS[this.state] ?? ""));
    setAttribute(this.button, "data-state", this.state || null);
    this.describe();
  }

  /** Give the button its name for screen readers. The step is left to moments when it matters: it changes all the time. */
  describe() {
    if (!this.world) return;
    const words = this.state ? `, ${STATE_WORDS[this.state] ?? this.state}` : "";
    const known = this.isLost ? `, not live${words && `, last seen${words.slice(1)}`}` : words;
    const where = this.episode >= 0 ? `, episode ${this.episode}, step ${this.step}` : "";
    setAttribute(this.button, "aria-label", `${this.world.id} lane ${this.lane}${known}${where}`);
  }

  _name() {
    return this.group?.world ? String(this.lane) : this.world.id.slice(this.world.family.length + 1, this.world.family.length + 7);
  }
}

/** A row of tiles of one group. */
class Row {
  constructor(columns) {
    this.tiles = Array.from({ length: columns }, () => new Tile());
    this.element = el("div", { class: "row" }, ...this.tiles.map((tile) => tile.button));
  }

  bind(group, number, showsStep) {
    this.tiles.forEach((tile, column) => {
      const index = number * this.tiles.length + column;
      if (index < group.shown) tile.bind(group, index, showsStep);
      else {
        tile.clear();
      }
    });
  }
}

/** A group that is near the screen. */
class GroupView {
  constructor(group) {
    const id = `group-${(GroupView.count += 1)}`;
    this.group = group;
    /** @type {Map<number, Row>} */
    this.rows = new Map();
    this.toggle = el("button", { type: "button", class: "toggle", "data-action": "toggle" });
    this.name = el("span", { class: "group-name", id });
    this.facts = el("span", { class: "group-facts" });
    this.more = el("button", { type: "button", class: "quiet", "data-action": "more" });
    this.toggle.append(el("span", { class: "chevron", "aria-hidden": "true" }), this.name);
    this.heading = el("h3", { class: "group-heading" }, this.toggle, this.facts);
    this.element = el("div", { class: "group", role: "group", "aria-labelledby": id }, this.heading);
    this.element.groupView = this;
  }

  /** Write the heading. */
  describe(serverName) {
    const { group } = this;
    const { world } = group;
    setText(this.name, world ? world.id : `${group.family}: ${plural(group.slots.filter(Boolean).length, "world")} of one lane`);
    const facts = world
      ? [plural(world.lanes, "lane"), world.trial ? `trial ${world.trial}` : world.stream, joinedWords(world), `seed ${world.seed}`]
      : [];
    if (serverName) facts.push(serverName);
    if (group.server.isLost) facts.unshift(group.server.whyLost);
    setText(this.facts, facts.filter(Boolean).join(" · "));
    setAttribute(this.facts, "title", this.facts.textContent);
    setAttribute(this.toggle, "aria-expanded", String(!group.isCollapsed));
    if (group.isCollapsed || group.count <= FIRST_LANES) return this.more.remove();
    if (!this.more.isConnected) this.heading.append(this.more);
    setText(this.more, group.showsAll ? `Show ${plural(FIRST_LANES, "lane")}` : `Show all ${plural(group.count, "lane")}`);
  }
}
GroupView.count = 0;

const joinedWords = (world) =>
  world.joined.length ? `joined: ${world.joined.map((one) => `${one.owner} ${one.width}×${one.height}`).join(", ")}` : "nobody has joined";

/** The elements of a layout inside an area that scrolls. */
export class TileView {
  /** @param {HTMLElement} area child of the element that scrolls */
  constructor(area) {
    this.area = area;
    /** @type {Map<string, GroupView>} */
    this._views = new Map();
    this._spare = [];
    this._columns = 0;
    /** @type {Map<string, Tile>} Tiles with an element, by the key of their lane. */
    this._tiles = new Map();
  }

  /** Show the part of a layout between two heights. @param {import("./grid.js").Layout} layout */
  render(layout, top, bottom, namesServers) {
    const focused = document.activeElement?.tile;
    const [group, index] = [focused?.group, focused?.index];
    if (layout.columns !== this._columns) this._forgetRows(layout.columns);
    const spare = SPARE_ROWS * layout.rowHeight;
    const near = layout.between(top - spare, bottom + spare);
    const keys = new Set(near.map((place) => place.group.key));
    this.area.style.height = `${layout.height}px`;
    for (const [key, view] of this._views)
      if (!keys.has(key) && !view.element.contains(document.activeElement)) this._remove(key, view);
    let before = null;
    for (const place of near) {
      const view = this._views.get(place.group.key) ?? new GroupView(place.group);
      if (!view.element.parentNode || this._views.get(place.group.key) !== view) {
        this._views.set(place.group.key, view);
        this.area.insertBefore(view.element, before ? before.nextSibling : this.area.firstChild);
      }
      before = view.element;
      this._renderGroup(view, place, layout, layout.rowsBetween(place, top - spare, bottom + spare), namesServers);
    }
    this._tiles = new Map(this._allTiles().map((tile) => [tile.key, tile]));
    // A lane whose button was made anew, in rows of another length, keeps the focus.
    if (group && !focused.button.isConnected) this.find(group, index)?.button.focus({ preventScroll: true });
  }

  /** Return the tiles between two heights that show a lane. */
  *between(layout, top, bottom) {
    for (const place of layout.between(top, bottom)) {
      const [first, end] = layout.rowsBetween(place, top, bottom);
      const rows = this._views.get(place.group.key)?.rows;
      for (let number = first; number < end; number++)
        for (const tile of rows?.get(number)?.tiles ?? []) if (tile.world) yield tile;
    }
  }

  /** Return the tile that shows the lane of this key, if it has an element. */
  showing(key) {
    return this._tiles.get(key);
  }

  /** Return the tile of a group with this number, if it has an element. */
  find(group, index) {
    return this._views.get(group.key)?.rows.get(Math.floor(index / this._columns))?.tiles[index % this._columns];
  }

  _allTiles() {
    const rows = [...this._views.values()].flatMap((view) => [...view.rows.values()]);
    return rows.flatMap((row) => row.tiles).filter((tile) => tile.world);
  }

  _renderGroup(view, place, layout, [first, end], namesServers) {
    view.group = place.group;
    view.describe(namesServers ? place.group.server.name : "");
    const { style } = view.element;
    style.top = `${place.top}px`;
    style.height = `${place.height}px`;
    for (const [number, row] of view.rows)
      if ((number < first || number >= end) && !(number < place.rows && row.element.contains(document.activeElement))) {
        view.rows.delete(number);
        row.element.remove();
        this._spare.push(row);
      }
    let before = view.heading;
    for (let number = first; number < end; number++) {
      let row = view.rows.get(number);
      if (!row) {
        row = this._spare.pop() ?? new Row(layout.columns);
        view.rows.set(number, row);
        view.element.insertBefore(row.element, before.nextSibling);
      }
      row.element.style.top = `${HEADING_HEIGHT + number * layout.rowHeight}px`;
      row.bind(place.group, number, layout.size >= SMALLEST_WITH_STEP);
      before = row.element;
    }
    this._setTabStop(view);
  }

  /** Let the Tab key reach one tile of the group: the active one, or the first with an element. */
  _setTabStop(view) {
    const numbers = [...view.rows.keys()].sort((one, other) => one - other);
    const tiles = numbers.flatMap((number) => view.rows.get(number)?.tiles ?? []).filter((tile) => tile.world);
    const stop = tiles.find((tile) => tile.index === view.group.active) ?? tiles[0];
    for (const tile of tiles) setAttribute(tile.button, "tabindex", tile === stop ? "0" : "-1");
  }

  _remove(key, view) {
    this._views.delete(key);
    this._spare.push(...view.rows.values());
    view.element.remove();
    for (const row of view.rows.values()) row.element.remove();
  }

  _forgetRows(columns) {
    for (const [key, view] of this._views) this._remove(key, view);
    this._spare = [];
    this._columns = columns;
    this.area.style.setProperty("--columns", String(columns));
    this.area.style.setProperty("--gap", `${GAP}px`);
  }
}
