// SHA-512 of files, a piece at a time: of a file of any size, one piece is in memory.
"use strict";
const SAID_EVERY = 4 << 20; // bytes

const hashing = begin();
let before = hashing.then((hasher) => postMessage({ ready: hasher !== null }));

onmessage = ({ data }) => { before = before.then(() => digest(data)); };

// null without WebAssembly: files are read nevertheless.
async function begin() {
  try {
    importScripts("/static/sha512.umd.min.js");
    return await hashwasm.createSHA512();
  } catch {
    return null;
  }
}

async function digest({ number, file }) {
  const hasher = await hashing;
  try {
    hasher?.init();
    await readWhole(file, (piece) => hasher?.update(piece), (read) => postMessage({ number, read }));
    postMessage({ number, sha512: hasher?.digest("hex") ?? null });
  } catch {
    postMessage({ number, unreadable: true });
  }
}

// Firefox gives the first bytes of a file that has grown, without an error, for a slice; here it gives all.
async function readWhole(file, onPiece, onRead) {
  const reader = file.stream().getReader();
  let [read, said] = [0, 0];
  for (let next = await reader.read(); !next.done && read <= file.size; next = await reader.read()) {
    onPiece(next.value);
    read += next.value.length;
    if (read - said < SAID_EVERY && read < file.size) continue;
    said = read;
    onRead(read);
  }
  if (read !== file.size) throw new Error("it has changed");
}
