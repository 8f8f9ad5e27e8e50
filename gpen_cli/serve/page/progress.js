// The progress bar, the time that is left, the device's load.

import { status } from "./server.js";
import { words } from "./words.js";

const $ = (id) => document.getElementById(id);
let secondsPerMegapixel = null; // measured here, on this server

// What is known of how far the work is: bytes sent, then the time that such photos took before.
export class Progress {
  constructor(count) {
    this.count = count;
    this.index = 0;
    $("progress").hidden = false;
    this.timer = setInterval(() => this.tick(), 200);
    this.asked = setInterval(() => this.ask(), 1000);
    this.ask();
  }

  begin(photo) {
    this.photo = photo;
    this.begun = null;
    this.upload = 0;
    $("stage").textContent = words.sending;
  }

  sent(share) {
    this.upload = share;
    if (share < 1 || this.begun) return;
    this.begun = performance.now();
    $("stage").textContent = words.working(this.photo.file.name);
  }

  // Seconds that one photo takes, as far as anything was measured.
  expected() {
    const megapixels = this.photo.size ? (this.photo.size[0] * this.photo.size[1]) / 1e6 : null;
    const own = secondsPerMegapixel && megapixels ? secondsPerMegapixel * megapixels : 0;
    return Math.max(own, this.figures?.expected_seconds || 0) || null;
  }

  tick() {
    const expected = this.expected();
    const elapsed = this.begun ? (performance.now() - this.begun) / 1000 : 0;
    const worked = this.begun && expected ? Math.min(0.95, elapsed / expected) : 0;
    $("bar").value = (100 * (this.index + 0.1 * this.upload + 0.9 * worked)) / this.count;
    if (expected && this.begun) {
      const ahead = Math.max(0, expected - elapsed) + (this.count - this.index - 1) * expected;
      $("left").textContent = words.left(ahead);
    }
  }

  async ask() {
    try {
      this.figures = await status();
    } catch {
      return;
    }
    const memory = this.figures.memory_bytes ? (this.figures.memory_bytes / 1e9).toFixed(1) : "";
    $("device").textContent = words.device(this.figures.device, Math.round(100 * this.figures.load), memory);
  }

  done(photo) {
    this.index += 1;
    if (this.begun && photo.size && photo.state !== "failed") {
      secondsPerMegapixel = (performance.now() - this.begun) / 1000 / ((photo.size[0] * photo.size[1]) / 1e6);
    }
  }

  end() {
    clearInterval(this.timer);
    clearInterval(this.asked);
    $("progress").hidden = true;
    $("left").textContent = "";
  }
}
