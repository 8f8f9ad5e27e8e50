// Talks to the server. Errors are problem details (RFC 9457).

export class Problem extends Error {
  constructor(kind, detail) {
    super(detail);
    this.kind = kind;
  }
}

// Sends a photo. told({sent: 0..1}) while it goes up; resolves to the answer: an object, or a Blob for /preview.
export function ask(path, file, fields = {}, told = () => {}) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    form.append("image", file, file.name || "pasted.png");
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.responseType = "blob";
    request.setRequestHeader("Accept", path === "preview" ? "image/jpeg" : "application/json");
    request.upload.onprogress = (event) => event.lengthComputable && told(event.loaded / event.total);
    request.upload.onload = () => told(1);
    request.onerror = () => reject(new Problem("unreachable", ""));
    request.onload = async () => {
      if (request.status === 200 && path === "preview") return resolve(request.response);
      let body;
      try {
        body = JSON.parse(await request.response.text());
      } catch {
        return reject(new Problem("unreachable", ""));
      }
      if (request.status === 200) return resolve(body);
      return reject(new Problem((body.type || "").replace("urn:gpen:", ""), body.detail || ""));
    };
    request.send(form);
  });
}

export async function status() {
  const answer = await fetch("status");
  if (!answer.ok) throw new Problem("unreachable", "");
  return answer.json();
}

// base64 -> Blob. (fetch of a data: address is against the page's own rules.)
export function pictureOf(answer) {
  const text = atob(answer.image);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  return new Blob([bytes], { type: answer.media_type });
}
