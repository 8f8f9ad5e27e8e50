// A zip archive without compression (APPNOTE 6.3.10): pictures are compressed already.

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

// numbers: [value, bytes] pairs, little-endian
function record(numbers) {
  const view = new DataView(new ArrayBuffer(numbers.reduce((sum, [, size]) => sum + size, 0)));
  let at = 0;
  for (const [value, size] of numbers) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return new Uint8Array(view.buffer);
}

function dosTime(date) {
  const time = (date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1);
  return [time, ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate()];
}

// Names that occur twice get a number.
export function uniqueNames(names) {
  const taken = new Set();
  return names.map((name) => {
    const dot = name.lastIndexOf(".");
    const [stem, suffix] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ""];
    let unique = name;
    for (let number = 2; taken.has(unique); number++) unique = `${stem} (${number})${suffix}`;
    taken.add(unique);
    return unique;
  });
}

// files: [{name, blob}] -> Blob
export async function zip(files) {
  const names = uniqueNames(files.map((file) => file.name));
  const [time, day] = dosTime(new Date());
  const parts = [], directory = [];
  let offset = 0, directorySize = 0;
  for (const [index, file] of files.entries()) {
    const bytes = new Uint8Array(await file.blob.arrayBuffer());
    const name = new TextEncoder().encode(names[index]);
    const UTF8 = 0x0800;
    const common = [[20, 2], [UTF8, 2], [0, 2], [time, 2], [day, 2], [crc32(bytes), 4], [bytes.length, 4], [bytes.length, 4],
      [name.length, 2], [0, 2]];
    const head = record([[0x04034b50, 4], ...common]);
    parts.push(head, name, bytes);
    const entry = record([[0x02014b50, 4], [20, 2], ...common, [0, 2], [0, 2], [0, 2], [0, 4], [offset, 4]]);
    directory.push(entry, name);
    offset += head.length + name.length + bytes.length;
    directorySize += entry.length + name.length;
  }
  const end = record([[0x06054b50, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [directorySize, 4], [offset, 4], [0, 2]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}
