/**
 * The tab of trials: those that run with their actors, and those that have ended with the reasons.
 */

import { byId, duration, el, number, plural, precise, reconcile, setAttribute, setText } from "./dom.js";

export class TrialsTab {
  /**
   * @param {import("./live.js").Server[]} servers
   * @param {(server: import("./live.js").Server, trial: string) => void} join starts (an empty id) or joins a trial as a human
   * @param {(server: number, world: string) => string} linkTo returns the address of a world's large view
   */
  constructor(servers, join, linkTo) {
    this.servers = servers;
    this.join = join;
    this.linkTo = linkTo;
    this.isActive = false;
    for (const server of servers) for (const event of ["trials", "state"]) server.on(event, () => this.update());
  }

  setActive(isActive) {
    this.isActive = isActive;
    for (const server of this.servers) server.subscribe(["worlds", "stats", ...(isActive ? ["trials"] : [])]);
    if (isActive) this.update();
  }

  update() {
    if (!this.isActive) return;
    const servers = this.servers.filter((server) => server.hello?.has_trials);
    reconcile(byId("trials-servers"), servers, (server) => String(server.index), (server) => this._section(server), (section, server) => this._fill(section, server));
  }

  _section(server) {
    const running = el("tbody");
    const ended = el("tbody");
    const start = el("button", { type: "button", class: "primary", text: "Start a trial and play", on: { click: () => this.join(server, "") } });
    const words = el("p");
    const section = el(
      "div",
      { class: "card wide" },
      this.servers.length > 1 ? el("h2", { text: server.name }) : null,
      el("div", { class: "status-line" }, words, start),
      el("h3", { text: "Running" }),
      tableOf("Running trials", ["Trial", "State", "Time", "Ticks", "Actors", "World", "Take part"], running),
      el("h3", { text: "Ended" }),
      tableOf("Ended trials", ["Trial", "Ticks", "Reason"], ended),
    );
    return Object.assign(section, { parts: { running, ended, start, words } });
  }

  _fill(section, server) {
    const { running, ended, start, words } = section.parts;
    const trials = server.trials;
    start.hidden = !(server.hello.can_control && trials?.can_start);
    if (!trials) {
      setText(words, server.isOpen ? "Waiting for the list of trials." : "Not connected.");
      return;
    }
    const more = trials.running_count > trials.running.length ? `; the newest ${number(trials.running.length)} that run are shown` : "";
    setText(words, `${plural(trials.running_count, "running trial")}, ${plural(trials.ended.length, "ended one")}${more}`);
    reconcile(running, trials.running, (trial) => trial.id, (trial) => this._row(server, trial), (row, trial) => this._fillRow(row, server, trial));
    reconcile(ended, trials.ended, (trial) => trial.id, rowOf(3), (row, trial) =>
      [trial.id, number(trial.ticks), trial.reason].forEach((text, index) => setText(row.children[index], text)),
    );
  }

  _row(server, trial) {
    const row = rowOf(7)();
    row.children[4].append(el("ul", { class: "actors" }));
    row.children[5].append(el("a", {}));
    row.children[6].append(el("button", { type: "button", text: "Join as human", "aria-label": `Join as human: trial ${trial.id}`, on: { click: () => this.join(server, trial.id) } }));
    return row;
  }

  _fillRow(row, server, trial) {
    [trial.id, trial.state, duration(trial.seconds), number(trial.ticks)].forEach((text, index) => setText(row.children[index], text));
    reconcile(row.children[4].firstChild, trial.actors, (actor) => String(actor.id), () => el("li"), (item, actor) => setText(item, actorWords(actor)));
    const link = row.children[5].firstChild;
    setText(link, trial.world);
    setAttribute(link, "href", trial.world ? this.linkTo(server.index, trial.world) : null);
    const isOpen = trial.actors.some((actor) => actor.kind === "human" && !actor.has_joined);
    row.children[6].firstChild.hidden = !(server.hello.can_control && isOpen);
  }
}

function actorWords(actor) {
  const kind = actor.kind === "human" ? "human" : `agent at ${actor.endpoint}`;
  const joined = actor.has_joined ? "joined" : "not joined yet";
  return `${actor.id} ${actor.class}, ${kind}, ${joined}, reward ${precise(actor.reward)}`;
}

const rowOf = (cells) => () => el("tr", {}, el("th", { scope: "row" }), ...Array.from({ length: cells - 1 }, () => el("td")));

function tableOf(name, heads, body) {
  const head = el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text }))));
  return el("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": name }, el("table", {}, head, body));
}
