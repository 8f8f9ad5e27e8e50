// The two pictures at one scale: boxes over them, a divider across one another, a magnifier showing the same place in both.

const SVG = "http://www.w3.org/2000/svg";
const ZOOM = 3;
const STEP = 0.02; // of the picture, for each press of an arrow key
const CLICK = 5; // pixels that a hand may tremble

export class Viewer {
  // chosen({region} or {face}): the user wants only that restored
  constructor(area, lens, chosen) {
    this.area = area;
    this.lens = lens;
    this.chosen = chosen;
    this.panes = [...area.querySelectorAll(".pane")];
    this.divider = area.querySelector("#divider");
    this.handle = area.querySelector("#handle");
    this.photo = null; // {size, original, faces, result}
    this.lensWanted = true;
    for (const pane of this.panes) this.listen(pane.querySelector(".picture"));
    this.divider.addEventListener("input", () => this.split());
    this.handle.addEventListener("pointerdown", (event) => this.grab(event));
    new ResizeObserver(() => this.split()).observe(area);
  }

  // size: [width, height] of the photo; original, result: addresses or null; faces, restoredFaces: [{box, decision}]
  show({ size, original, faces, result, restoredFaces, name }) {
    this.photo = { size, faces };
    const [width, height] = size;
    const [before, after] = this.panes;
    for (const pane of this.panes) {
      pane.style.width = `min(100%, calc(78vh * ${width / height}), ${Math.max(3 * width, 320)}px)`;
      pane.style.justifySelf = "center";
      pane.querySelector(".picture").style.aspectRatio = `${width} / ${height}`;
      pane.querySelector("svg").setAttribute("viewBox", `0 0 ${width} ${height}`);
    }
    this.fill(before, original, name[0]);
    this.fill(after, result, name[1]);
    this.boxes(before, faces);
    this.boxes(after, result ? restoredFaces.filter((face) => face.decision === "restored") : []);
    if (!result) this.mode("side");
    this.split();
  }

  fill(pane, address, name) {
    const image = pane.querySelector("img");
    pane.querySelector(".picture").classList.toggle("empty-picture", !address);
    image.alt = address ? name : "";
    if (!address) image.removeAttribute("src");
    else if (image.getAttribute("src") !== address) image.src = address;
  }

  boxes(pane, faces) {
    const svg = pane.querySelector("svg");
    svg.replaceChildren(...faces.map((face) => {
      const [left, top, right, bottom] = face.box;
      const box = rectangle([left, top, right - left, bottom - top]);
      if (face.decision === "skipped" || face.decision === "kept") box.classList.add("left-alone");
      return box;
    }));
  }

  mode(name) {
    this.area.classList.toggle("side", name === "side");
    this.area.classList.toggle("over", name === "over");
    this.split();
  }

  // Puts the divider where its slider says.
  split() {
    const picture = this.panes[1].querySelector(".picture");
    const over = this.area.classList.contains("over");
    const share = Number(this.divider.value) / 100;
    picture.style.clipPath = over ? `inset(0 0 0 ${100 * share}%)` : "";
    if (!over) return;
    const box = picture.getBoundingClientRect(), area = this.area.getBoundingClientRect();
    this.handle.style.left = `${box.left - area.left + share * box.width}px`;
    this.handle.style.height = `${box.height}px`;
    this.divider.style.width = `${box.width}px`;
  }

  grab(event) {
    event.preventDefault();
    this.handle.setPointerCapture(event.pointerId);
    const move = (moved) => {
      const box = this.panes[1].getBoundingClientRect();
      this.divider.value = Math.min(100, Math.max(0, (100 * (moved.clientX - box.left)) / box.width));
      this.split();
    };
    const stop = () => {
      this.handle.removeEventListener("pointermove", move);
      this.handle.removeEventListener("pointerup", stop);
      this.handle.removeEventListener("pointercancel", stop);
    };
    this.handle.addEventListener("pointermove", move);
    this.handle.addEventListener("pointerup", stop);
    this.handle.addEventListener("pointercancel", stop);
  }

  listen(picture) {
    let begin = null;
    let spot = [0.5, 0.5];
    picture.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.photo) return;
      begin = { x: event.clientX, y: event.clientY };
      picture.setPointerCapture(event.pointerId);
    });
    picture.addEventListener("pointermove", (event) => {
      if (begin) this.draw(this.region(picture, begin, event));
      else if (event.pointerType === "mouse") this.magnify(...share(picture, event), event.clientX, event.clientY);
    });
    picture.addEventListener("pointerup", (event) => {
      if (!begin) return;
      const region = this.region(picture, begin, event);
      const far = Math.max(Math.abs(event.clientX - begin.x), Math.abs(event.clientY - begin.y));
      begin = null;
      this.draw(null);
      if (far > CLICK) this.chosen({ region });
      else this.clicked(share(picture, event));
    });
    picture.addEventListener("pointercancel", () => {
      begin = null;
      this.draw(null);
    });
    picture.addEventListener("pointerleave", () => this.hideLens());
    picture.addEventListener("blur", () => this.hideLens());
    picture.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };
      if (event.key === "Escape") this.hideLens();
      if (!moves[event.key] || !this.photo) return;
      event.preventDefault();
      spot = spot.map((value, axis) => Math.min(1, Math.max(0, value + moves[event.key][axis])));
      const box = picture.getBoundingClientRect();
      this.magnify(...spot, box.left + spot[0] * box.width, box.top + spot[1] * box.height);
    });
  }

  clicked([x, y]) {
    const [width, height] = this.photo.size;
    const hit = this.photo.faces.find(({ box }) => box[0] <= x * width && x * width <= box[2] && box[1] <= y * height && y * height <= box[3]);
    if (hit) this.chosen({ face: hit });
  }

  // [x, y, width, height] in pixels of the photo
  region(picture, begin, event) {
    const box = picture.getBoundingClientRect(), [width, height] = this.photo.size;
    const across = [begin.x, event.clientX].map((x) => Math.min(1, Math.max(0, (x - box.left) / box.width)) * width).sort((a, b) => a - b);
    const down = [begin.y, event.clientY].map((y) => Math.min(1, Math.max(0, (y - box.top) / box.height)) * height).sort((a, b) => a - b);
    return [across[0], down[0], across[1] - across[0], down[1] - down[0]];
  }

  draw(region) {
    this.hideLens();
    for (const pane of this.panes) {
      pane.querySelector(".drawn")?.remove();
      if (!region) continue;
      const box = rectangle(region);
      box.classList.add("drawn");
      pane.querySelector("svg").append(box);
    }
  }

  magnify(x, y, left, top) {
    if (!this.lensWanted || x < 0 || x > 1 || y < 0 || y > 1) return this.hideLens();
    this.lens.hidden = false;
    const shown = this.panes[0].getBoundingClientRect().width;
    this.panes.forEach((pane, index) => {
      const image = pane.querySelector("img"), canvas = this.lens.querySelectorAll("canvas")[index];
      const has = image.getAttribute("src") && image.complete && image.naturalWidth > 0;
      canvas.parentElement.hidden = !has;
      if (!has) return;
      const side = (canvas.clientWidth / ZOOM / shown) * image.naturalWidth;
      const brush = canvas.getContext("2d");
      brush.clearRect(0, 0, canvas.width, canvas.height);
      brush.imageSmoothingQuality = "high";
      brush.drawImage(image, x * image.naturalWidth - side / 2, y * image.naturalHeight - side / 2, side, side, 0, 0, canvas.width, canvas.height);
    });
    const { width, height } = this.lens.getBoundingClientRect();
    const away = 24;
    const toLeft = left + away + width > innerWidth ? left - away - width : left + away;
    const toTop = top + away + height > innerHeight ? top - away - height : top + away;
    this.lens.style.left = `${Math.max(4, Math.min(innerWidth - width - 4, toLeft))}px`;
    this.lens.style.top = `${Math.max(4, toTop)}px`;
    return undefined;
  }

  hideLens() {
    this.lens.hidden = true;
  }
}

function share(picture, event) {
  const box = picture.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

function rectangle([x, y, width, height]) {
  const box = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ x, y, width, height })) box.setAttribute(name, value);
  return box;
}
