// SHA-512 of files, a piece at a time: of a file of any size, one piece is in memory.
"use strict";
importScripts("/static/sha512.umd.min.js");

const PIECE = 4 << 20;
const hashing = hashwasm.createSHA512();
let before = hashing.then(() => postMessage({ ready: true }), () => postMessage({ ready: false }));

onmessage = ({ data }) => { before = before.then(() => digest(data)); };

async function digest({ number, file }) {
  try {
    const hasher = (await hashing).init();
    for (let at = 0; at < file.size; at += PIECE) {
      hasher.update(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
      postMessage({ number, read: Math.min(at + PIECE, file.size) });
    }
    postMessage({ number, sha512: hasher.digest("hex") });
  } catch {
    postMessage({ number, unreadable: true });
  }
}
