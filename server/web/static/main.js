/**
 * The page: it connects to the servers, and shows what its address says. `#worlds`, `#server`, `#trials` and `#play` are tabs;
 * `#worlds/WORLD/LANE?camera=…` is the large view of a lane.
 */

import { byId, plural, setText, store, stored } from "./dom.js";
import { Server } from "./live.js";
import { WorldsTab } from "./worlds.js";

const FOLLOW_MS = 2000;
/** Whoever has touched keys or pointer so recently is busy. */
const BUSY_MS = 5000;
/** Servers whose reasons are shown above all tabs. */
const MOST_REASONS = 3;
/** Time for which a warning stays. */
const WARNING_MS = 10_000;

/** Return the servers of this page; try until there are some. */
async function findServers() {
  for (;;) {
    try {
      const reply = await fetch("/api/servers");
      if (reply.redirected || reply.status === 401) location.assign(`/login${location.hash}`);
      const answer = reply.ok ? await reply.json() : null;
      if (answer?.servers.length) return answer;
      setText(byId("connection-text"), answer ? "no servers yet" : "no connection, trying again");
    } catch {
      setText(byId("connection-text"), "no connection, trying again");
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

/** Load the page anew when servers of a page over several have come or gone, as soon as nobody is busy with it. */
function followServers(servers) {
  const paths = servers.map((server) => server.path).join(" ");
  if (!paths) return;
  let touched = -Infinity;
  for (const event of ["keydown", "pointerdown", "wheel"]) addEventListener(event, () => (touched = performance.now()), { passive: true });
  setInterval(async () => {
    const { tab, target } = readAddress(servers);
    if (target || tab === "play" || performance.now() - touched < BUSY_MS) return;
    try {
      const reply = await fetch("/api/servers", { redirect: "manual" });
      const now = reply.ok ? (await reply.json()).servers.map((entry) => entry.path).join(" ") : paths;
      if (now !== paths) location.reload();
    } catch {
      // The page itself is away for a moment.
    }
  }, FOLLOW_MS);
}

/** Return the number in the path of a server, which stays while others come and go; 0 on a page of one server. */
function numberOf(server) {
  return Number(server.path.split("/").pop()) || 0;
}

/** Return the address of a lane's large view. */
function addressOf(servers, { server, world, lane, agent, camera, output }) {
  const options = new URLSearchParams();
  const number = numberOf(servers[server]);
  if (number) options.set("server", String(number));
  if (agent) options.set("agent", String(agent));
  if (camera) options.set("camera", camera);
  if (output && output !== "rgb") options.set("output", output);
  const query = options.toString();
  return `#worlds/${encodeURIComponent(world)}/${lane}${query ? `?${query}` : ""}`;
}

/** Return the tab and the lane that the page's address names. */
function readAddress(servers) {
  const [path, query] = location.hash.slice(1).split("?");
  const [tab, world, lane] = path.split("/");
  const options = new URLSearchParams(query);
  const whole = (text) => Math.max(0, Number.parseInt(text ?? "0", 10) || 0);
  const target = {
    server: Math.max(0, servers.findIndex((server) => numberOf(server) === whole(options.get("server")))),
    world: decodeText(world ?? ""),
    lane: whole(lane),
    agent: whole(options.get("agent")),
    camera: options.get("camera") ?? "",
    output: options.get("output") ?? "rgb",
  };
  return { tab: byId(`tab-${tab}`) ? tab : "worlds", target: world ? target : null };
}

function decodeText(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return why servers are lost, for the first few of them. */
function reasons(lost) {
  const rest = lost.length - MOST_REASONS;
  const more = rest > 0 ? [`${plural(rest, "more server is", "more servers are")} not connected: the tab Server lists them`] : [];
  return [...lost.slice(0, MOST_REASONS).map((server) => server.whyLost), ...more].map((text) => `${text}.`).join(" ");
}

/** Show who is connected, in the header, and why others are not. */
class ConnectionLine {
  constructor(servers) {
    this.servers = servers;
    this._announced = "";
    byId("connection-retry").addEventListener("click", () => servers.forEach((server) => server.retry()));
    for (const server of servers) {
      server.on("state", () => this.update());
      server.on("error", ({ text }) => this._warn(`${server.name} refuses what this page asks for: ${text}`));
    }
    setInterval(() => this.update(), 500);
  }

  update() {
    const lost = this.servers.filter((server) => !server.isOpen);
    const open = this.servers.length - lost.length;
    const [text, state] = this._words(lost, open);
    setText(byId("connection-text"), text);
    const why = reasons(lost.filter((server) => server.isLost));
    setText(byId("lost"), why);
    byId("connection").dataset.state = state;
    byId("connection-retry").hidden = !lost.some((server) => server.retryAt > performance.now() + 1000);
    const announced = state === "open" ? "Connected" : [text.replace(/ in \d+ s$/, ""), why].filter(Boolean).join(". "); // without seconds
    if (announced !== this._announced) setText(byId("connection-announcement"), (this._announced = announced));
    const hello = this.servers.find((server) => server.hello)?.hello;
    const about = this.servers.length > 1 ? plural(this.servers.length, "server") : hello?.server;
    if (hello) setText(byId("about-server"), `${about} · ${hello.version} · ${hello.renderer}`);
    if (hello) byId("about-server").title = hello.device;
  }

  /** Show a line above all tabs, for a while. */
  _warn(text) {
    setText(byId("warning"), text);
    clearTimeout(this._warning);
    this._warning = setTimeout(() => setText(byId("warning"), ""), WARNING_MS);
  }

  _words(lost, open) {
    if (!lost.length) return ["connected", "open"];
    const first = lost.reduce((one, other) => (other.retryAt < one.retryAt ? other : one));
    const wait = Math.max(0, Math.ceil((first.retryAt - performance.now()) / 1000));
    if (open) return [`${open} of ${plural(this.servers.length, "server")} connected`, "some"];
    if (!first.retryAt) return ["connecting", "connecting"];
    const what = this.servers.some((server) => server.hello) ? "connection lost" : "not connected";
    return [`${what}, trying again ${wait ? `in ${wait} s` : "now"}`, "lost"];
  }
}

/** Show the tab or the lane that the address names, and let that alone watch. */
class Router {
  constructor(servers) {
    this.servers = servers;
    this.detail = null;
    /** @type {Record<string, {setActive: (isActive: boolean) => void}>} */
    this.tabs = { worlds: new WorldsTab(servers, (target) => this._go(target)) };
    this._active = null;
    addEventListener("hashchange", () => {
      this._canGoBack = Boolean(readAddress(servers).target);
      this.show();
    });
    document.addEventListener("visibilitychange", () => this.show());
    for (const server of servers) server.on("state", () => this._offerTabs());
  }

  /** Load what the tab of worlds can do without: so the first tiles come sooner. */
  async load() {
    const { servers, tabs } = this;
    const names = ["detail", "stats", "trials", "play"];
    const [{ DetailView }, { StatsTab }, { TrialsTab }, { PlayTab }] = await Promise.all(names.map((name) => import(`./${name}.js`)));
    const play = new PlayTab(servers);
    const join = (server, trial) => {
      location.hash = "#play";
      play.start(server, { trial });
    };
    const linkTo = (server, world) => addressOf(servers, { server, world, lane: 0, agent: 0, camera: "", output: "rgb" });
    Object.assign(tabs, { server: new StatsTab(servers), trials: new TrialsTab(servers, join, linkTo), play });
    this.detail = new DetailView(servers, (target) => this._go(target));
    this.show();
  }

  /** Show what the address names. */
  show() {
    const { tab, target } = readAddress(this.servers);
    for (const section of document.querySelectorAll(".tab")) section.hidden = section.id !== `tab-${tab}`;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.getAttribute("href") === `#${tab}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const title = target ? `${target.world} lane ${target.lane}` : tab[0].toUpperCase() + tab.slice(1);
    document.title = `${title} · worldloom`;
    const active = document.hidden ? null : (target && this.detail) || this.tabs[tab] || null;
    if (active !== this._active) this._active?.setActive(false);
    if (target) this.detail?.show(target);
    else this.detail?.close();
    if (active !== this._active) active?.setActive(true);
    this._active = active;
  }

  /** Change the address: a lane is a new entry of the history, another view of it is not. */
  _go(target) {
    const isOpen = readAddress(this.servers).target !== null;
    if (target && isOpen) history.replaceState(null, "", addressOf(this.servers, target));
    else if (target) {
      history.pushState(null, "", addressOf(this.servers, target));
      this._canGoBack = true;
    } else if (this._canGoBack) return history.back();
    else history.replaceState(null, "", "#worlds");
    this.show();
  }

  _offerTabs() {
    const has = (name) => this.servers.some((server) => server.hello?.[name]);
    document.querySelector('nav a[href="#trials"]').hidden = !has("has_trials");
    document.querySelector('nav a[href="#play"]').hidden = !has("can_control");
  }
}

function followTheme() {
  const choice = byId("theme");
  choice.value = stored("theme", "");
  choice.addEventListener("change", () => {
    store("theme", choice.value);
    document.documentElement.dataset.theme = choice.value;
  });
}

followTheme();
const { servers: entries, needs_token: needsToken } = await findServers();
byId("sign-out").hidden = !needsToken;
const servers = entries.map((entry, index) => new Server(entry, index));
new ConnectionLine(servers);
const router = new Router(servers);
router.show();
await router.load();
followServers(servers);
