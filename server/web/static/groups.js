/**
 * Groups of lanes, as the tab of worlds shows them: each world of several lanes is a group, and the worlds of one lane of
 * a family at a server are one together. Their order is that of their arrival, so that little moves when worlds come and go.
 */

/** Lanes that a group shows at first: a world of more has a button for the rest. */
export const FIRST_LANES = 1024;

/** Words that a world is found by. @param {any} world */
const searchText = (world) =>
  [world.id, world.family, world.stream, world.trial, world.seed, ...Object.entries(world.settings).map((pair) => pair.join("=")),
    ...world.joined.map((one) => one.owner)].join(" ").toLowerCase();

/** Lanes under one heading. */
export class Group {
  constructor(key, server, family) {
    this.key = key;
    this.server = server;
    this.family = family;
    /** @type {any} The world, if the group is one world. */
    this.world = null;
    /** @type {(any|null)[]} Worlds of one lane each; null where one is gone and no other has come yet. */
    this.slots = [];
    this.isCollapsed = false;
    this.showsAll = false;
    /** Number of the tile that the Tab key reaches. */
    this.active = 0;
  }

  /** Number of tiles, without those that only show when all are asked for. */
  get shown() {
    if (this.isCollapsed) return 0;
    return this.showsAll ? this.count : Math.min(this.count, FIRST_LANES);
  }

  get count() {
    return this.world ? this.world.lanes : this.slots.length;
  }

  /** @returns {{world: any, lane: number}|null} what the tile of this number shows */
  item(index) {
    if (this.world) return index < this.world.lanes ? { world: this.world, lane: index } : null;
    const world = this.slots[index];
    return world ? { world, lane: 0 } : null;
  }
}

/** The groups of all servers. */
export class GroupList {
  constructor() {
    /** @type {Map<string, Group>} */
    this._groups = new Map();
  }

  /** @returns {Group[]} those that have something to show */
  get groups() {
    return [...this._groups.values()];
  }

  /**
   * Take the worlds as they are now.
   * @param {import("./live.js").Server[]} servers
   * @param {{family: string, stream: string, trial: string, text: string, server: string}} filter
   * @param {boolean} isTidy close the gaps of worlds that are gone
   * @returns {{worlds: number, lanes: number, lostWorlds: number, lostLanes: number}} how much passes the filter, and how
   *   much of that is of servers that are not connected
   */
  update(servers, filter, isTidy) {
    const singles = new Map();
    const seen = new Set();
    const total = { worlds: 0, lanes: 0, lostWorlds: 0, lostLanes: 0 };
    for (const server of servers) {
      if (filter.server && filter.server !== String(server.index)) continue;
      for (const world of server.worlds.values()) {
        if (!passes(world, filter)) continue;
        total.worlds += 1;
        total.lanes += world.lanes;
        if (!server.isOpen) {
          total.lostWorlds += 1;
          total.lostLanes += world.lanes;
        }
        const isSingle = world.lanes === 1;
        const key = `${server.index}/${isSingle ? `${world.family}/` : world.id}`;
        seen.add(key);
        if (isSingle) singles.set(key, (singles.get(key) ?? new Map()).set(world.id, world));
        const group = this._groups.get(key) ?? new Group(key, server, world.family);
        this._groups.set(key, group);
        if (!isSingle) group.world = world;
      }
    }
    for (const key of this._groups.keys()) if (!seen.has(key)) this._groups.delete(key);
    for (const [key, worlds] of singles) fillSlots(/** @type {Group} */ (this._groups.get(key)), worlds, isTidy);
    return total;
  }
}

function passes(world, filter) {
  return (
    (!filter.family || world.family === filter.family) &&
    (!filter.stream || world.stream.includes(filter.stream) || world.joined.some((one) => one.owner.includes(filter.stream))) &&
    (!filter.trial || world.trial.includes(filter.trial)) &&
    (!filter.text || searchText(world).includes(filter.text.toLowerCase()))
  );
}

/** Keep each world where it is; new ones take the places of those that are gone. */
function fillSlots(group, worlds, isTidy) {
  const waiting = new Map(worlds);
  group.slots = group.slots.map((old) => {
    const world = old ? (worlds.get(old.id) ?? null) : null;
    if (world) waiting.delete(world.id);
    return world;
  });
  const gaps = group.slots.length - worlds.size + waiting.size;
  if (isTidy || gaps - waiting.size > Math.max(16, worlds.size / 4)) group.slots = group.slots.filter(Boolean);
  const incoming = waiting.values();
  for (let index = 0; index < group.slots.length; index++) group.slots[index] ??= incoming.next().value ?? null;
  group.slots.push(...incoming);
  while (group.slots.length && !group.slots.at(-1)) group.slots.pop();
}
