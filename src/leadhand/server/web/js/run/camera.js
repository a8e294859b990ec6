// Panning and zooming of an SVG: one transform on one group, so that nothing is laid out again.

const MARGIN = 28;
const SCALE = { min: 0.04, max: 2.2, text: 0.42, mark: 0.2 };

export class Camera {
  /** @param {SVGSVGElement} svg @param {SVGGElement[]} worlds groups that move together */
  constructor(svg, worlds) {
    Object.assign(this, { svg, worlds, x: 0, y: 0, scale: 1, size: { width: 1, height: 1 }, touched: false });
    this.pointers = new Map();
    this.frame = 0;
    this.off = new AbortController();
    const on = (name, act, options = {}) => svg.addEventListener(name, act, { signal: this.off.signal, ...options });
    on("wheel", (event) => this.wheel(event), { passive: false });
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.drag(event));
    on("pointerup", (event) => this.up(event));
    on("pointercancel", (event) => this.up(event));
    this.watch = new ResizeObserver(() => (this.touched ? this.apply() : this.fit(this.size, this.floor)));
    this.watch.observe(svg);
  }

  close() {
    this.off.abort();
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
  }

  apply() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.x = this.bound(this.x, this.svg.clientWidth, this.size.width);
      this.y = this.bound(this.y, this.svg.clientHeight, this.size.height);
      const moved = `translate(${this.x.toFixed(1)} ${this.y.toFixed(1)}) scale(${this.scale.toFixed(4)})`;
      for (const world of this.worlds) world.setAttribute("transform", moved);
      this.svg.parentNode.classList.toggle("far", this.scale < SCALE.text);
      this.svg.parentNode.classList.toggle("tiny", this.scale < SCALE.mark);
    });
  }

  /** No farther than a margin beside what is drawn. */
  bound(place, view, drawn) {
    const free = view - drawn * this.scale;
    return Math.min(Math.max(0, free) + MARGIN, Math.max(Math.min(0, free) - MARGIN, place));
  }

  /** Everything in view, but never larger than life, nor smaller than `floor`. */
  fit(size = this.size, floor = SCALE.min) {
    [this.size, this.floor] = [size, floor];
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (!width || !height) return;
    const margin = Math.min(MARGIN, width / 20);
    const scale = Math.min((width - 2 * margin) / size.width, (height - 2 * margin) / size.height, 1);
    this.scale = Math.max(floor, scale);
    this.x = Math.max(margin, (width - size.width * this.scale) / 2);
    this.y = Math.max(margin, (height - size.height * this.scale) / 2);
    this.apply();
  }

  zoom(by, at = [this.svg.clientWidth / 2, this.svg.clientHeight / 2]) {
    const scale = Math.min(SCALE.max, Math.max(SCALE.min, this.scale * by));
    this.x = at[0] - ((at[0] - this.x) * scale) / this.scale;
    this.y = at[1] - ((at[1] - this.y) * scale) / this.scale;
    this.scale = scale;
    this.touched = true;
    this.apply();
  }

  pan(x, y) {
    this.x += x;
    this.y += y;
    this.touched = true;
    this.apply();
  }

  /** Bring a place into view, with as little movement as possible. */
  reveal(x, y, width, height) {
    if (this.scale < SCALE.text) this.scale = 0.8;
    const [left, top] = [this.x + x * this.scale, this.y + y * this.scale];
    const [right, bottom] = [left + width * this.scale, top + height * this.scale];
    const { clientWidth, clientHeight } = this.svg;
    const inside = left >= 16 && top >= 16 && right <= clientWidth - 16 && bottom <= clientHeight - 16;
    if (inside) return this.apply();
    this.x += clientWidth / 2 - (left + right) / 2;
    this.y += clientHeight / 2 - (top + bottom) / 2;
    this.touched = true;
    return this.apply();
  }

  /** With Ctrl or ⌘ the wheel zooms; without, it scrolls the page. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 16 : 1) * 0.006), this.at(event.clientX, event.clientY));
  }

  at(x, y) {
    const box = this.svg.getBoundingClientRect();
    return [x - box.left, y - box.top];
  }

  down(event) {
    if (event.button > 1) return;
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.travelled = 0;
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const here = [event.clientX, event.clientY];
    this.pointers.set(event.pointerId, here);
    if (this.pointers.size === 2) return void this.pinch(event.pointerId, before, here);
    this.travelled += Math.abs(here[0] - before[0]) + Math.abs(here[1] - before[1]);
    // A click stays a click until the hand has really moved.
    if (this.travelled > 4) {
      if (!this.svg.hasPointerCapture(event.pointerId)) this.svg.setPointerCapture(event.pointerId);
      this.pan(here[0] - before[0], here[1] - before[1]);
    }
  }

  pinch(id, before, here) {
    const other = [...this.pointers].find(([key]) => key !== id)[1];
    const was = Math.hypot(before[0] - other[0], before[1] - other[1]) || 1;
    const is = Math.hypot(here[0] - other[0], here[1] - other[1]) || 1;
    this.travelled = 99;
    this.zoom(is / was, this.at((here[0] + other[0]) / 2, (here[1] + other[1]) / 2));
  }

  up(event) {
    this.pointers.delete(event.pointerId);
  }

  /** Whether what just ended was a movement, and so no click. */
  get moving() {
    return (this.travelled ?? 0) > 4;
  }
}
