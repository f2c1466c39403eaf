/**
 * Elements, text and numbers of the page.
 *
 * Texts of the server reach the document as text nodes and attributes only, never as HTML: settings and names in them
 * come from clients.
 */

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id @returns {any} the element with this id */
export const byId = (id) => document.getElementById(id);

/**
 * Make an element.
 * @param {string} tag
 * @param {Record<string, any>} [props] attributes; `text` is its text, `on` an object of event listeners
 * @param {...(Node|string|null)} children
 * @returns {any}
 */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Make an element of an SVG image; the arguments are those of `el`. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Set the text of an element, if it changes: unchanged text costs no layout, and is not read out again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute, if it changes; remove it if `value` is null. */
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/**
 * Make the children of a parent match a list, reusing those with the same key, so that focus and selection stay.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => any} create makes a child
 * @param {(child: any, item: T) => void} update
 */
export function reconcile(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [/** @type {any} */ (child).itemKey, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = create(item);
      /** @type {any} */ (child).itemKey = key;
    }
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const child of old.values()) child.remove();
}

/** Replace the options of a select if they have changed, and keep its value where it is still offered. */
export function setOptions(select, options) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options === wanted) return;
  select.dataset.options = wanted;
  const value = select.value;
  select.replaceChildren(...options.map(([key, text]) => el("option", { value: key, text })));
  if (options.some(([key]) => key === value)) select.value = value;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
/** Numbers from here on are written with an exponent. */
const LARGE = 1e12;

/** Return a large number with up to four digits and an exponent, "" for others. */
function withExponent(value) {
  return Math.abs(value) < LARGE ? "" : Number(value.toPrecision(4)).toExponential().replace("e+", "e").replace("-", "−");
}

/** Return a number for people: whole from 100 on, with one digit behind the point below. */
export function number(value) {
  if (!Number.isFinite(value)) return "–";
  return withExponent(value) || (Number.isInteger(value) || Math.abs(value) >= 100 ? WHOLE.format(value) : TENTHS.format(value));
}

/** Return a number with up to four significant digits, such as a reward or a setting. */
export function precise(value) {
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "–";
  if (Number.isInteger(value)) return withExponent(value) || WHOLE.format(value);
  return withExponent(value) || String(Number(value.toPrecision(4))).replace("-", "−");
}

/** Return a count with its unit: "1 lane", "64 lanes". */
export const plural = (count, one, many = `${one}s`) => `${WHOLE.format(count)} ${count === 1 ? one : many}`;

/** Return bytes in the largest binary unit that fits. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${number(value)} ${units[unit]}`;
}

/** Return milliseconds for people. */
export const milliseconds = (value) => `${value < 10 ? Number(value.toPrecision(2)) : number(value)} ms`;

/** Return a duration: "12 s", "3 min 20 s", "2 h 5 min". */
export function duration(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Return what was stored in this browser under a name, or `otherwise`. */
export function stored(name, otherwise) {
  try {
    return localStorage.getItem(name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Store a text in this browser; where storage is forbidden, nothing is kept. */
export function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Nothing depends on it.
  }
}

/** Hand a file to the person at the browser. */
export function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name.replace(/[^\w.-]+/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
