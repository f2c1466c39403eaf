/**
 * Where each group, row and tile lies. Numbers only: the layout of thousands of groups is computed without touching the
 * document, and only what is near the screen becomes elements (tiles.js).
 */

export const HEADING_HEIGHT = 44;
export const GAP = 8;
const GROUP_SPACE = 16;
const CAPTION_HEIGHT = 18;
/** Tiles below this size have no room for words. */
const SMALLEST_WITH_CAPTION = 64;
/** Tiles below this size have no room for the step of the episode. */
export const SMALLEST_WITH_STEP = 96;

/**
 * Place of a group: `top` and `height` in pixels of the scrolled area.
 * @typedef {{group: import("./groups.js").Group, top: number, height: number, rows: number}} Place
 */

export class Layout {
  /**
   * @param {import("./groups.js").Group[]} groups
   * @param {number} width in pixels of CSS
   * @param {number} size side of a picture in pixels of CSS
   */
  constructor(groups, width, size) {
    this.size = size;
    this.hasCaptions = size >= SMALLEST_WITH_CAPTION;
    this.tileHeight = size + 2 + (this.hasCaptions ? CAPTION_HEIGHT : 0);
    this.rowHeight = this.tileHeight + GAP;
    this.columns = Math.max(1, Math.floor((width + GAP) / (size + 2 + GAP)));
    /** @type {Place[]} */
    this.places = [];
    let top = 0;
    for (const group of groups) {
      const rows = Math.ceil(group.shown / this.columns);
      const height = HEADING_HEIGHT + rows * this.rowHeight + (rows ? GROUP_SPACE : GAP);
      this.places.push({ group, top, height, rows });
      top += height;
    }
    this.height = top;
  }

  /** Return the places that a stretch of the scrolled area touches. */
  between(top, bottom) {
    const found = [];
    for (let index = this._indexAt(top); index < this.places.length && this.places[index].top < bottom; index++)
      found.push(this.places[index]);
    return found;
  }

  /** Return the first row that a stretch touches, and the row after the last. @param {Place} place */
  rowsBetween(place, top, bottom) {
    const from = place.top + HEADING_HEIGHT;
    const first = Math.floor((top - from) / this.rowHeight);
    const end = Math.ceil((bottom - from) / this.rowHeight);
    return [Math.max(0, first), Math.min(place.rows, Math.max(0, end))];
  }

  /** Return the group at the top of what is scrolled to, and how far it is scrolled: an anchor that outlives a layout. */
  anchorAt(top) {
    const place = this.places[this._indexAt(top)];
    return place ? { key: place.group.key, offset: top - place.top } : null;
  }

  /** Return the number of the first group that ends below this point. */
  _indexAt(top) {
    let low = 0;
    let high = this.places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.places[middle].top + this.places[middle].height <= top) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
