/**
 * The tab of worlds: every lane as a tile. Only the tiles on the screen are watched; where they are more than the server
 * draws in one picture, they take turns.
 */

import { byId, number, plural, setOptions, setText, store, stored } from "./dom.js";
import { Layout, HEADING_HEIGHT } from "./grid.js";
import { GroupList } from "./groups.js";
import { paintLater } from "./pictures.js";
import { TileView } from "./tiles.js";

const SIZES = [32, 48, 64, 96, 128, 192, 256];
/** Least time between two changes of what is watched, while scrolling. */
const WATCH_PAUSE_MS = 120;
const RATE_WINDOW_MS = 3000;
/** Addresses at which the page and the server are on one machine: there pictures need no compression. */
const IS_LOCAL = /^(localhost|127\.|\[::1\])/.test(location.hostname);

export class WorldsTab {
  /**
   * @param {import("./live.js").Server[]} servers
   * @param {(place: {server: number, world: string, lane: number, agent: number, camera: string, output: string}) => void} open
   *   opens the large view of a lane
   */
  constructor(servers, open) {
    this.servers = servers;
    this.open = open;
    this.isActive = false;
    this.isPaused = false;
    this._list = new GroupList();
    this._scroller = byId("worlds-scroller");
    this._area = byId("worlds-area");
    this._view = new TileView(this._area);
    this._layout = new Layout([], 1, 64);
    /** Where the views of each server begin that are watched next, if there are too many for one picture. */
    this._turns = servers.map(() => 0);
    this._watched = servers.map(() => "");
    this._watchedAt = 0;
    this._painted = [];
    this._onScreen = 0;
    this._total = { worlds: 0, lanes: 0, lostWorlds: 0, lostLanes: 0 };
    this._makeTools();
    this._listen();
    for (const server of servers) {
      server.on("worlds", () => this.update());
      server.on("state", () => this.update());
    }
    setInterval(() => this.isActive && this._describe(), 500);
  }

  /** Begin or end to watch what is on the screen. */
  setActive(isActive) {
    this.isActive = isActive;
    if (isActive) this.update();
    else this._unwatch();
  }

  /** Take the worlds of all servers as they are now, and keep what is at the top of the screen where it is. */
  update(isTidy = false) {
    if (!this.isActive) return;
    this._offerFilters();
    this._total = this._list.update(this.servers, this._filter(), isTidy);
    this._relayout();
    this._describe();
  }

  _filter() {
    const value = (name) => byId(`filter-${name}`).value.trim();
    return { family: value("family"), stream: value("stream"), trial: value("trial"), text: value("text"), server: value("server") };
  }

  get _isAnyOpen() {
    return this._list.groups.some((group) => !group.isCollapsed);
  }

  get _size() {
    return SIZES[Number(byId("tile-size").value)];
  }

  /** Size of the frames that are asked for: that of the tiles, within what all servers draw. */
  get _frameSize() {
    return Math.min(this._size, ...this.servers.map((server) => server.hello?.max_size ?? 256));
  }

  _makeTools() {
    for (const name of ["tile-size", "tile-rate", "tile-format", "tile-output"]) {
      const input = byId(name);
      input.value = stored(name, name === "tile-format" && !IS_LOCAL ? "jpeg" : input.value);
      input.addEventListener("input", () => {
        store(name, input.value);
        this._watched.fill("");
        if (name === "tile-output") this._area.querySelectorAll("canvas").forEach((canvas) => canvas.classList.add("blank"));
        this._relayout();
      });
    }
    for (const name of ["family", "stream", "trial", "text", "server"])
      byId(`filter-${name}`).addEventListener("input", () => {
        this._scroller.scrollTop = 0;
        this.update(true);
      });
    byId("filter-clear").addEventListener("click", () => this._clearFilters());
    byId("worlds-pause").addEventListener("click", () => this._pause(!this.isPaused));
    byId("worlds-collapse").addEventListener("click", () => {
      const isCollapsed = this._isAnyOpen;
      for (const group of this._list.groups) group.isCollapsed = isCollapsed;
      this._relayout();
      this._describe();
    });
    const wide = matchMedia("(min-width: 60rem)");
    const follow = () => (byId("worlds-tools").open = wide.matches);
    wide.addEventListener("change", follow);
    follow();
  }

  _clearFilters() {
    for (const name of ["family", "stream", "trial", "text", "server"]) byId(`filter-${name}`).value = "";
    this.update(true);
    byId("filter-text").focus();
  }

  _pause(isPaused) {
    this.isPaused = isPaused;
    const button = byId("worlds-pause");
    button.setAttribute("aria-pressed", String(isPaused));
    setText(button, isPaused ? "Go on" : "Pause");
    this._relayout();
  }

  _offerFilters() {
    const worlds = this.servers.flatMap((server) => [...server.worlds.values()]);
    const offer = (values) => [...new Set(values)].filter(Boolean).sort();
    const families = offer([...worlds.map((world) => world.family), byId("filter-family").value]); // the choice stays, without worlds too
    setOptions(byId("filter-family"), [["", "All families"], ...families.map((name) => [name, name])]);
    setOptions(byId("filter-streams"), offer(worlds.map((world) => world.stream)).slice(0, 100).map((name) => [name, name]));
    setOptions(byId("filter-trials"), offer(worlds.map((world) => world.trial)).slice(0, 100).map((name) => [name, name]));
    byId("filter-server").parentNode.hidden = this.servers.length < 2;
    setOptions(byId("filter-server"), [["", "All servers"], ...this.servers.map((server) => [String(server.index), server.name])]);
  }

  _listen() {
    this._scroller.addEventListener("scroll", () => this._plan(), { passive: true });
    new ResizeObserver(() => this._relayout()).observe(this._scroller);
    this._area.addEventListener("click", (event) => this._click(event));
    this._area.addEventListener("keydown", (event) => this._move(event));
    this._area.addEventListener("focusin", (event) => event.target.tile?.describe());
  }

  _click(event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.tile) {
      const { group, world, lane, index } = button.tile;
      group.active = index;
      this.open({ server: group.server.index, world: world.id, lane, agent: 0, camera: "", output: byId("tile-output").value });
      return;
    }
    const { group } = button.closest(".group").groupView;
    if (button.dataset.action === "toggle") group.isCollapsed = !group.isCollapsed;
    else group.showsAll = !group.showsAll;
    this._relayout();
  }

  /** Move the focus between tiles with the arrow keys. */
  _move(event) {
    const tile = event.target.tile;
    if (!tile || event.ctrlKey || event.altKey || event.metaKey) return;
    const { columns, rowHeight } = this._layout;
    const page = Math.max(1, Math.floor(this._scroller.clientHeight / rowHeight) - 1) * columns;
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page };
    let target = tile.index + (moves[event.key] ?? 0);
    let group = tile.group;
    if (event.key === "Home") target = 0;
    else if (event.key === "End") target = group.shown - 1;
    else if (!(event.key in moves)) return;
    event.preventDefault();
    if (target < 0 || target >= group.shown) {
      const { places } = this._layout;
      const way = target < 0 ? -1 : 1;
      let at = places.findIndex((place) => place.group === group) + way;
      while (places[at] && !places[at].rows) at += way;
      if (places[at] && !(Math.abs(target - tile.index) > columns)) {
        group = places[at].group;
        target = way < 0 ? group.shown - 1 : 0;
      } else target = Math.min(Math.max(target, 0), group.shown - 1);
    }
    this._focus(group, target);
  }

  _focus(group, index) {
    const place = this._layout.places.find((one) => one.group === group);
    if (!place) return;
    group.active = index;
    const top = place.top + HEADING_HEIGHT + Math.floor(index / this._layout.columns) * this._layout.rowHeight;
    const { scrollTop, clientHeight } = this._scroller;
    if (top < scrollTop + HEADING_HEIGHT) this._scroller.scrollTop = top - HEADING_HEIGHT;
    else if (top + this._layout.rowHeight > scrollTop + clientHeight) this._scroller.scrollTop = top + this._layout.rowHeight - clientHeight;
    this._render();
    this._view.find(group, index)?.button.focus({ preventScroll: true });
  }

  _relayout() {
    if (!this.isActive) return;
    const { scrollTop } = this._scroller;
    const anchor = this._layout.anchorAt(scrollTop);
    const style = getComputedStyle(this._scroller);
    const width = this._scroller.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    this._layout = new Layout(this._list.groups, width, this._size);
    this._area.style.setProperty("--tile", `${this._size}px`);
    this._area.style.setProperty("--tile-height", `${this._layout.tileHeight}px`);
    this._area.classList.toggle("captions", this._layout.hasCaptions);
    this._area.style.height = `${this._layout.height}px`;
    const place = anchor && scrollTop > 0 ? this._layout.places.find((one) => one.group.key === anchor.key) : null;
    if (place && anchor && Math.abs(place.top + anchor.offset - scrollTop) > 1)
      this._scroller.scrollTop = place.top + Math.min(anchor.offset, place.height);
    this._render();
  }

  /** Render with the next frame of the browser: several scroll events may come before it. */
  _plan() {
    this._planned ??= requestAnimationFrame(() => {
      this._planned = undefined;
      this._render();
    });
  }

  _render() {
    if (!this.isActive) return;
    const { scrollTop, clientHeight } = this._scroller;
    this._view.render(this._layout, scrollTop, scrollTop + clientHeight, this.servers.length > 1);
    const wait_ms = this._watchedAt + WATCH_PAUSE_MS - performance.now();
    clearTimeout(this._watchTimer);
    if (wait_ms > 0) this._watchTimer = setTimeout(() => this._watch(), wait_ms);
    else this._watch();
  }

  _unwatch() {
    clearTimeout(this._watchTimer);
    this._watched.fill("");
    for (const server of this.servers) server.watch(null);
  }

  /** Watch the tiles on the screen, and no others. */
  _watch() {
    if (!this.isActive) return;
    const { scrollTop, clientHeight } = this._scroller;
    const tiles = [...this._view.between(this._layout, scrollTop, scrollTop + clientHeight)];
    this._onScreen = tiles.filter((tile) => !tile.isLost).length;
    if (this.isPaused) return this._unwatch();
    for (const server of this.servers)
      this._watchServer(server, tiles.filter((tile) => tile.group.server === server && server.worlds.has(tile.world.id)));
  }

  _watchServer(server, tiles) {
    const affordable = Math.floor((server.hello?.max_pixels ?? Infinity) / this._frameSize ** 2);
    const most = Math.min(server.hello?.max_tiles ?? 256, affordable);
    const turns = Math.ceil(tiles.length / most);
    const start = turns > 1 ? this._turns[server.index] % tiles.length : 0;
    const chosen = turns > 1 ? [...tiles, ...tiles].slice(start, start + most) : tiles;
    const keys = chosen.map((tile) => tile.key);
    const output = byId("tile-output").value;
    const format = output === "rgb" || output === "gray" ? byId("tile-format").value : "raw";
    const rate = Math.min(Number(byId("tile-rate").value) * Math.max(1, turns), server.hello?.max_rate ?? 30);
    const what = [output, format, rate, this._frameSize, ...keys].join(" ");
    if (what === this._watched[server.index]) return;
    this._watched[server.index] = what;
    this._watchedAt = performance.now();
    if (!chosen.length) return server.watch(null);
    const views = chosen.map((tile) => [tile.world.id, tile.lane, 0, "", output]);
    const show = async (picture, done) => {
      if (turns > 1) {
        this._turns[server.index] = (start + most) % tiles.length;
        this._watch(); // so the next ones are drawn while these are painted
      }
      const isDecoded = await picture.decode().then(() => true, () => false);
      if (!isDecoded) return done(); // the tiles stay as they are
      paintLater(this._paint(server, picture, keys, output), () => {
        picture.close();
        done();
        this._notePicture(picture);
      });
    };
    server.watch({ views, size: this._frameSize, rate, format, follow: null, show });
  }

  /** Paint a picture into the tiles that show its lanes now: rows may have been made anew since it was asked for. */
  *_paint(server, picture, keys, output) {
    const { states } = server.hello;
    for (const frame of picture.frames) {
      const tile = this._view.showing(keys[frame.view]);
      if (!tile || this.isPaused) continue;
      if (frame.offset >= 0) {
        picture.paint(tile.canvas, frame, output);
        tile.canvas.className = "";
      }
      tile.take(states[frame.state], frame.episode, frame.step);
      yield;
    }
  }

  _notePicture(picture) {
    this._painted.push(performance.now());
    this._isLate = picture.isLate;
  }

  /** Write the line under the tools, and what stands where there is nothing to show. */
  _describe() {
    const since = performance.now() - RATE_WINDOW_MS;
    this._painted = this._painted.filter((time) => time > since);
    const rate = (1000 * this._painted.length) / RATE_WINDOW_MS;
    const { worlds, lanes, lostWorlds, lostLanes } = this._total;
    const pace = this.isPaused ? "paused" : `${number(Math.round(10 * rate) / 10)} pictures a second${this._isLate ? ", late: the server is busy" : ""}`;
    const count = (ofLanes, ofWorlds) => `${plural(ofLanes, "lane")} in ${plural(ofWorlds, "world")}`;
    const lost = lostWorlds ? ` · not live: ${count(lostLanes, lostWorlds)}` : "";
    setText(byId("worlds-status"), `${count(lanes - lostLanes, worlds - lostWorlds)} · ${number(this._onScreen)} on the screen · ${pace}${lost}`);
    setText(byId("worlds-collapse"), this._isAnyOpen || !lanes ? "Collapse all" : "Expand all");
    const all = this.servers.reduce((sum, server) => sum + server.worlds.size, 0);
    const isKnown = this.servers.some((server) => server.hasWorlds);
    byId("worlds-none").hidden = !isKnown || all > 0;
    byId("worlds-filtered").hidden = !(all > 0 && worlds === 0);
    byId("worlds-waiting").hidden = isKnown || all > 0;
    const hello = this.servers.find((server) => server.hello)?.hello;
    setText(byId("sample-address"), JSON.stringify(hello?.server ?? "127.0.0.1:9000"));
  }
}
