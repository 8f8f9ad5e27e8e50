// The page: photos come in, are sent to the server, and their results are shown and saved.

import { Progress } from "./progress.js";
import { ask, pictureOf, status } from "./server.js";
import { Viewer } from "./viewer.js";
import { sentence, translatePage, words } from "./words.js";
import { zip } from "./zip.js";

const $ = (id) => document.getElementById(id);
const photos = []; // {file, url, size, faces, detected, result, state, note, restoredWith}
let current = null;
let busy = false;
let limit = null;

const viewer = new Viewer($("stage-area"), $("lens"), ({ region, face }) => {
  if (!busy && current) restore([current], region || boxOf(face));
});

translatePage();
status().then((figures) => {
  limit = figures.max_upload_bytes;
  $("kinds").textContent = words.kinds(+(limit / 1e6).toFixed(1));
}).catch(() => {});

// -- photos come in ---------------------------------------------------------------------------------------------------

$("choose").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  add([...$("file").files]);
  $("file").value = "";
});
document.addEventListener("paste", (event) => add([...(event.clipboardData?.files || [])]));
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.toggle("dragging", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") add([...event.dataTransfer.files]);
  });
}

function add(files) {
  if (!files.length) return;
  const added = files.map((file) => ({ file, url: URL.createObjectURL(file), size: null, faces: [], result: null, state: "waiting", note: "" }));
  photos.push(...added);
  document.body.classList.add("has-photo");
  $("work").hidden = false;
  select(added[0]);
}

function select(photo) {
  current = photo;
  draw();
  look(photo);
}

// Shows the photo and finds its faces, once.
function look(photo) {
  photo.looked ??= (async () => {
    if (limit && photo.file.size > limit) return fail(photo, words.tooLarge(+(limit / 1e6).toFixed(1)));
    await showable(photo);
    if (photo === current) draw();
    try {
      const report = await ask("detect", photo.file);
      photo.size = report.size;
      photo.faces = report.faces;
      photo.detected = true;
      photo.note = report.status === "no_face" ? words.noFace : photo.url ? "" : words.unshowable;
    } catch (problem) {
      fail(photo, sentence(problem));
    }
    if (photo === current) draw();
    return undefined;
  })();
  return photo.looked;
}

function fail(photo, note) {
  photo.state = "failed";
  photo.note = note;
  if (photo === current) draw();
}

// A browser that cannot show the file (HEIC, TIFF) gets a JPEG of it from the server.
async function showable(photo) {
  photo.size = await sizeOf(photo.url);
  if (photo.size) return;
  try {
    photo.url = URL.createObjectURL(await ask("preview", photo.file));
    photo.size = await sizeOf(photo.url);
  } catch {
    photo.url = null;
  }
}

async function sizeOf(url) {
  const image = new Image();
  image.src = url;
  try {
    await image.decode();
  } catch {
    return null;
  }
  return [image.naturalWidth, image.naturalHeight];
}

// -- restoring --------------------------------------------------------------------------------------------------------

$("go").addEventListener("click", () => {
  const wanted = photos.filter((photo) => photo.state !== "failed" && photo.restoredWith !== settingsMark());
  restore(wanted.length ? wanted : [current]);
});

function settings() {
  return {
    fidelity_weight: $("weight").value,
    upscale: $("size").value,
    color_fix: $("colours").checked ? "lab" : "none",
    format: "png",
  };
}

const settingsMark = () => JSON.stringify(settings());

function boxOf(face) {
  const [left, top, right, bottom] = face.box;
  return [left, top, right - left, bottom - top];
}

async function restore(wanted, region = null) {
  busy = true;
  draw();
  const progress = new Progress(wanted.length);
  for (const photo of wanted) {
    progress.begin(photo);
    await one(photo, region, progress);
    progress.done(photo);
  }
  progress.end();
  busy = false;
  draw();
  $("stage").textContent = "";
  ($("save").hidden ? $("go") : $("save")).focus({ preventScroll: true });
}

async function one(photo, region, progress) {
  if (limit && photo.file.size > limit) return fail(photo, words.tooLarge(+(limit / 1e6).toFixed(1)));
  const fields = settings();
  if (region) fields.faces = region.map((value) => Math.max(0, value).toFixed(1)).join(",");
  try {
    const begin = performance.now();
    const answer = await ask("enhance", photo.file, fields, (sent) => progress.sent(sent));
    const blob = pictureOf(answer);
    if (photo.result) URL.revokeObjectURL(photo.result.url);
    const report = answer.report;
    photo.result = { blob, url: URL.createObjectURL(blob), name: answer.name, faces: report.faces };
    photo.size = report.size;
    photo.faces = report.faces;
    photo.restoredWith = region ? "" : settingsMark();
    photo.state = report.status === "no_face" ? "noFaceShort" : "done";
    photo.note = noteOf(report, region, (performance.now() - begin) / 1000);
    photo.good = report.faces.some((face) => face.decision === "restored");
  } catch (problem) {
    fail(photo, sentence(problem));
  }
  if (photo === current) draw();
  return undefined;
}

function noteOf(report, region, seconds) {
  if (report.status === "no_face") return region ? words.noFaceRegion : words.noFace;
  const restored = report.faces.filter((face) => face.decision === "restored").length;
  return restored ? words.finished(restored, seconds.toFixed(1)) : words.keptAll;
}

// -- what is shown ----------------------------------------------------------------------------------------------------

function draw() {
  const photo = current;
  const finished = photos.filter((item) => item.result);
  $("name").textContent = photo.file.name;
  $("go").disabled = busy || photos.every((item) => item.state === "failed");
  const sound = photos.filter((item) => item.state !== "failed").length;
  $("go").textContent = sound > 1 ? words.restoreAll(sound) : words.restore;
  $("save").hidden = !photo.result;
  $("zip").hidden = finished.length < 2;
  $("message").hidden = !photo.note;
  $("message").classList.toggle("good", photo.state === "done" && photo.good);
  if ($("message").textContent !== photo.note) $("message").textContent = photo.note;
  const visible = Boolean(photo.size);
  $("stage-area").hidden = $("look").hidden = !visible;
  $("over").disabled = !photo.result;
  if (visible) {
    viewer.show({
      size: photo.size,
      original: photo.url,
      faces: photo.faces,
      result: photo.result?.url || null,
      restoredFaces: photo.result?.faces || [],
      name: [words.altOriginal(photo.file.name), words.altRestored(photo.file.name)],
    });
    pressed();
  }
  drawFaces(photo);
  drawFiles();
}

function drawFaces(photo) {
  $("faces").hidden = !photo.faces.length;
  $("faces").querySelector("ul").replaceChildren(...photo.faces.map((face, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words.face(index + 1);
    button.disabled = busy;
    button.addEventListener("click", () => restore([photo], boxOf(face)));
    return listed(button);
  }));
}

function drawFiles() {
  $("files").hidden = photos.length < 2;
  if (photos.length < 2) return;
  $("files").querySelector("ul").replaceChildren(...photos.map((photo) => {
    const button = document.createElement("button");
    button.type = "button";
    const image = document.createElement("img");
    image.alt = "";
    if (photo.url) image.src = photo.url;
    const title = document.createElement("span");
    title.className = "title";
    title.textContent = photo.file.name;
    const state = document.createElement("span");
    state.textContent = words[photo.state];
    button.append(image, title, state);
    button.setAttribute("aria-current", String(photo === current));
    button.addEventListener("click", () => select(photo));
    return listed(button);
  }));
}

function listed(element) {
  const item = document.createElement("li");
  item.append(element);
  return item;
}

function pressed() {
  const over = $("stage-area").classList.contains("over");
  $("over").setAttribute("aria-pressed", String(over));
  $("side").setAttribute("aria-pressed", String(!over));
}

for (const mode of ["side", "over"]) {
  $(mode).addEventListener("click", () => {
    viewer.mode(mode);
    pressed();
  });
}
$("boxes").addEventListener("change", () => $("stage-area").classList.toggle("no-boxes", !$("boxes").checked));
$("lens-on").addEventListener("change", () => {
  viewer.lensWanted = $("lens-on").checked;
});
$("weight").addEventListener("input", drawWeight);
$("natural").addEventListener("click", () => {
  $("weight").value = 0.7;
  drawWeight();
});

function drawWeight() {
  const natural = Number($("weight").value) === 0.7;
  $("weight-value").textContent = Number($("weight").value) + (natural ? ` (${words.natural})` : "");
}

// -- saving -----------------------------------------------------------------------------------------------------------

$("save").addEventListener("click", () => save(current.result.name, current.result.url));
$("zip").addEventListener("click", async () => {
  const address = URL.createObjectURL(await zip(photos.filter((photo) => photo.result).map((photo) => photo.result)));
  save("gpen.zip", address);
  setTimeout(() => URL.revokeObjectURL(address), 60000);
});

function save(name, address) {
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
}
