/**
 * Pictures from the server: taken apart, and painted into canvases a slice at a time, so that scrolling stays smooth.
 */

/** Share of the time between two frames of the browser that painting takes, and its limits in milliseconds. */
const SHARE = 0.5;
const [LEAST_MS, MOST_MS] = [5, 100];
const DECODER = new TextDecoder();

/** A picture: frames of the views of one watch request, in their order. */
export class Picture {
  constructor(header, payload) {
    this.header = header;
    this.number = header.picture;
    this.watch = header.watch;
    this.size = header.size;
    this.followed = header.followed;
    this.isLate = Boolean(header.is_late);
    this.frames = header.frames.map(([view, state, episode, step, offset]) => ({ view, state, episode, step, offset }));
    this._payload = payload;
    this._strip = null;
  }

  /** Decode what can only be decoded later: the JPEG of a compressed picture. */
  async decode() {
    if (this.header.format !== "jpeg" || !this.frames.some((frame) => frame.offset >= 0)) return;
    this._strip = await createImageBitmap(new Blob([this._payload], { type: "image/jpeg" }));
  }

  /** Free the memory of the decoded strip. */
  close() {
    this._strip?.close();
  }

  /**
   * Paint a frame that was drawn into a canvas, one pixel of the canvas for each of the frame.
   * @param {HTMLCanvasElement} canvas
   * @param {{offset: number}} frame
   * @param {string} output
   * @param {{low: number, high: number}|null} [range] metres of depth that the scale covers; those of the frame if null
   * @returns {{low: number, high: number}|Uint32Array|null} the frame's own range of depth, or the pixels of each label
   */
  paint(canvas, frame, output, range = null) {
    const { size } = this;
    if (canvas.width !== size || canvas.height !== size) canvas.width = canvas.height = size;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    if (this._strip) {
      context.drawImage(this._strip, 0, frame.offset * size, size, size, 0, 0, size, size);
      return null;
    }
    const { image, words } = scratch(size);
    const found = PAINTERS[output](words, this._payload, frame.offset, range);
    context.putImageData(image, 0, 0);
    return found;
  }
}

/** @param {ArrayBuffer} buffer @returns {Picture} */
export function readPicture(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(DECODER.decode(new Uint8Array(buffer, 4, length)));
  return new Picture(header, new Uint8Array(buffer, 4 + length));
}

const scratches = new Map();

/** Return an image of this size, and its pixels as words of 32 bits. */
function scratch(size) {
  if (!scratches.has(size)) {
    const image = new ImageData(size, size);
    scratches.set(size, { image, words: new Uint32Array(image.data.buffer) });
  }
  return scratches.get(size);
}

/** Opaque pixel as a word; the browsers that there are run on little-endian machines. */
const word = (red, green, blue) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;

const PAINTERS = {
  rgb(words, bytes, offset) {
    for (let pixel = 0, at = offset; pixel < words.length; pixel++, at += 3)
      words[pixel] = 0xff000000 | (bytes[at + 2] << 16) | (bytes[at + 1] << 8) | bytes[at];
    return null;
  },
  gray(words, bytes, offset) {
    for (let pixel = 0; pixel < words.length; pixel++) words[pixel] = 0xff000000 | (bytes[offset + pixel] * 0x010101);
    return null;
  },
  segmentation(words, bytes, offset) {
    const pixels = new Uint32Array(256);
    for (let pixel = 0; pixel < words.length; pixel++) {
      const label = bytes[offset + pixel];
      words[pixel] = LABEL_WORDS[label];
      pixels[label] += 1;
    }
    return pixels;
  },
  depth(words, bytes, offset, range) {
    const metres = new Float32Array(bytes.slice(offset, offset + 4 * words.length).buffer);
    const own = { low: Infinity, high: -Infinity };
    for (const value of metres) {
      if (value < own.low) own.low = value;
      if (value > own.high && value < Infinity) own.high = value;
    }
    const { low, high } = range ?? own;
    const scale = 255 / Math.max(high - low, 1e-6);
    for (let pixel = 0; pixel < words.length; pixel++) {
      const level = (metres[pixel] - low) * scale;
      words[pixel] = DEPTH_WORDS[level > 0 ? (level < 255 ? level | 0 : 255) : 0];
    }
    return own;
  },
};

/** Colours of depth from near to far: bright and yellow to dark and blue, in steps that look even. */
const DEPTH_STOPS = [
  [253, 231, 37], [160, 218, 57], [74, 193, 109], [31, 161, 135], [39, 127, 142], [54, 92, 141], [70, 50, 127], [68, 1, 84],
];
const DEPTH_WORDS = Uint32Array.from({ length: 256 }, (_, level) => {
  const at = (level / 255) * (DEPTH_STOPS.length - 1);
  const stop = Math.min(Math.floor(at), DEPTH_STOPS.length - 2);
  const mix = (channel) => Math.round(DEPTH_STOPS[stop][channel] * (stop + 1 - at) + DEPTH_STOPS[stop + 1][channel] * (at - stop));
  return word(mix(0), mix(1), mix(2));
});

const LABEL_COLORS = [
  [130, 170, 205], [94, 92, 88], [181, 136, 99], [255, 200, 60], [226, 76, 75], [70, 160, 110], [140, 95, 200], [60, 120, 215],
  [240, 140, 190], [30, 190, 200], [190, 205, 80], [250, 140, 50], [120, 60, 60], [215, 215, 225], [45, 70, 110], [170, 110, 150],
];

/** Return the red, green and blue of a label; beyond the palette, hues that differ much from one to the next. */
function labelColor(label) {
  if (label < LABEL_COLORS.length) return LABEL_COLORS[label];
  const hue = (label * 0.61803) % 1;
  return [0, 1 / 3, 2 / 3].map((shift) => Math.round(140 + 100 * Math.cos(2 * Math.PI * (hue + shift))));
}

const LABEL_WORDS = Uint32Array.from({ length: 256 }, (_, label) => word(...labelColor(label)));

/** Return a label's colour as CSS. */
export const labelCss = (label) => `rgb(${labelColor(label).join(" ")})`;

/** Paint the scale of depth into a canvas, near at the left. */
export function paintDepthScale(canvas) {
  canvas.width = 256;
  canvas.height = 1;
  const image = new ImageData(256, 1);
  new Uint32Array(image.data.buffer).set(DEPTH_WORDS);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** @type {{steps: Iterator<void>, done: () => void}[]} */
const queue = [];
let isScheduled = false;
let paintedAt = 0;

/**
 * Paint in the frames of the browser that come, a few milliseconds in each.
 * @param {Iterator<void>} steps each step paints a little
 * @param {() => void} done called when all is painted
 */
export function paintLater(steps, done) {
  queue.push({ steps, done });
  if (document.hidden) dropAll();
  else if (!isScheduled) {
    isScheduled = true;
    paintedAt = performance.now();
    requestAnimationFrame(paintSome);
  }
}

function paintSome() {
  const now = performance.now();
  const end = now + Math.min(Math.max(SHARE * (now - paintedAt), LEAST_MS), MOST_MS);
  paintedAt = now;
  while (queue.length && performance.now() < end) {
    let isOver = true;
    try {
      isOver = Boolean(queue[0].steps.next().done);
    } catch (error) {
      console.error(error); // one picture that cannot be painted must not stop those after it
    }
    if (isOver) queue.shift()?.done();
  }
  isScheduled = queue.length > 0;
  if (isScheduled) requestAnimationFrame(paintSome);
}

/** Drop what waits: a hidden page is not painted. */
function dropAll() {
  for (const job of queue.splice(0)) job.done();
}

document.addEventListener("visibilitychange", () => document.hidden && dropAll());
