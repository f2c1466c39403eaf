/**
 * Files of what a lane shows: a PNG of the frame as it was drawn, and a film that is recorded while one watches.
 */

import { download, setText } from "./dom.js";

const FILM_SIZE = 512;
const TYPES = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];

/** Save a canvas as a PNG with its own pixels. */
export function savePng(canvas, name) {
  canvas.toBlob((blob) => blob && download(blob, `${name}.png`), "image/png");
}

/** Records the frames that it is given into a film of whole multiples of their pixels. */
export class FilmRecorder {
  /** @param {HTMLButtonElement} button starts, stops, and shows the seconds @param {(text: string) => void} tell */
  constructor(button, tell) {
    this.button = button;
    this.tell = tell;
    /** @type {MediaRecorder|null} */
    this.recorder = null;
    this.canvas = document.createElement("canvas");
  }

  get isRecording() {
    return this.recorder !== null;
  }

  /** Begin a film with this frame as its first. */
  start(canvas, name) {
    if (typeof MediaRecorder === "undefined" || !this.canvas.captureStream) {
      this.tell("This browser cannot record films: it has no MediaRecorder.");
      return;
    }
    const factor = Math.max(1, Math.floor(FILM_SIZE / canvas.width));
    this.canvas.width = this.canvas.height = canvas.width * factor;
    this.add(canvas);
    const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
    const parts = [];
    const stream = this.canvas.captureStream(30);
    const end = () => stream.getTracks().forEach((track) => track.stop());
    try {
      this.recorder = new MediaRecorder(stream, { mimeType, videoBitsPerSecond: 6e6 });
      this.recorder.start(1000);
    } catch (error) {
      this.recorder = null;
      end();
      this.tell(`This browser cannot record films: ${error instanceof Error ? error.message : error}`);
      return;
    }
    this.recorder.ondataavailable = ({ data }) => parts.push(data);
    this.recorder.onstop = () => {
      end();
      const type = mimeType?.split(";")[0] ?? "video/webm";
      download(new Blob(parts, { type }), `${name}.${type.split("/")[1]}`);
      this.tell("The film is saved.");
    };
    this.began = performance.now();
    this._timer = setInterval(() => this._show(), 250);
    this._show();
  }

  /** Take the next frame. */
  add(canvas) {
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, 0, 0, this.canvas.width, this.canvas.height);
  }

  /** End the film and hand it over, if one is being recorded. */
  stop() {
    if (!this.recorder) return;
    this.recorder.stop();
    this.recorder = null;
    clearInterval(this._timer);
    setText(this.button, "Record film");
    this.button.setAttribute("aria-pressed", "false");
  }

  _show() {
    this.button.setAttribute("aria-pressed", "true");
    setText(this.button, `● Stop, ${Math.floor((performance.now() - this.began) / 1000)} s`);
  }
}
