// The digests of files, computed one after the other beside the page.

import { Said } from "./requests.js";

export class Unreadable extends Said {
  constructor(name) {
    super(`${name} cannot be read: it was moved, removed or changed since you chose it. Choose the files again.`);
  }
}

// `available` becomes false where the browser has no worker or no WebAssembly: then `of` gives null, as it
// does if the worker fails. Without WebAssembly the worker reads the file nevertheless: it may have changed.
export function startDigests() {
  const asked = new Map();
  let number = 0;
  let worker = null;
  let settle;
  const available = new Promise((resolve) => { settle = resolve; });
  try {
    worker = new Worker("/static/deposit/digest-worker.js");
    worker.onerror = () => {
      worker = null;
      settle(false);
      for (const { resolve } of asked.values()) resolve(null);
    };
    worker.onmessage = ({ data }) => {
      if ("ready" in data) return settle(data.ready);
      const { file, resolve, reject, onRead } = asked.get(data.number);
      if ("read" in data) return onRead(file, data.read);
      asked.delete(data.number);
      if (data.unreadable) reject(new Unreadable(file.name));
      else resolve(data.sha512);
    };
  } catch {
    settle(false);
  }
  return {
    available,
    async of(file, onRead = () => {}) {
      await available;
      if (!worker) return null;
      return new Promise((resolve, reject) => {
        asked.set(++number, { file, resolve, reject, onRead });
        worker.postMessage({ number, file });
      });
    },
    stop: () => worker?.terminate(),
  };
}

export function reprDigest(sha512) {
  const bytes = sha512.match(/../g).map((pair) => String.fromCharCode(parseInt(pair, 16)));
  return `sha-512=:${btoa(bytes.join(""))}:`;
}
