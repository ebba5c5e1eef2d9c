// Files to an upload: three at a time, each in pieces that continue after a cut.
import { Problem, Unreachable, cancelled, send } from "./requests.js";
import { Unreadable, reprDigest } from "./digests.js";

const PIECE = 8 << 20;
const AT_ONCE = 3;
const LONGEST_WAIT = 30_000;
const SPEED_OVER = 10_000;

export const pathOf = (upload, name) =>
  `/v1/uploads/${upload}/${name.split("/").map(encodeURIComponent).join("/")}`;

// Uploads `files` ({name, file, size}) of which `arrived` (name -> {size, sha512}) are not sent again.
// `watch` is told of bytes and waiting; resolves with the digests by name, rejects on the first refusal.
export async function uploadAll(upload, files, arrived, digests, watch, outer) {
  const total = files.reduce((sum, { file }) => sum + file.size, 0);
  const sha512 = {};
  const stop = new AbortController();
  outer.addEventListener("abort", () => stop.abort(), { once: true });
  const report = measure(total, watch);
  const waiting = [...files];

  async function lane() {
    for (let next = waiting.shift(); next && !stop.signal.aborted; next = waiting.shift()) {
      const { name, file } = next;
      const digest = await digests.of(file, watch.reading);
      sha512[name] = digest;
      const there = arrived.get(name);
      if (digest && there?.size === file.size && there.sha512 === digest) {
        report(0, file.size);
      } else {
        let sent = 0;
        const onBytes = (count) => { report(count - sent); sent = count; };
        await uploadFile(upload, name, file, digest, {
          signal: stop.signal,
          onBytes,
          onWait: watch.waiting,
        });
        onBytes(file.size);
      }
    }
  }

  try {
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
  } catch (error) {
    stop.abort();
    throw error;
  }
  return sha512;
}

export async function uploadFile(upload, name, file, sha512, { signal, onBytes = () => {}, onWait = () => {} }) {
  const path = pathOf(upload, name);
  let offset = 0;
  let begun = false; // by this page, with these bytes
  for (;;) {
    let end = Math.min(offset + PIECE, file.size);
    const headers = {
      "Upload-Offset": offset,
      "Upload-Complete": end === file.size ? "?1" : "?0",
      "Upload-Length": file.size,
      ...(sha512 ? { "Repr-Digest": reprDigest(sha512) } : {}),
    };
    const from = offset;
    const options = { signal, onWait, name: file.name, onSent: (bytes) => onBytes(Math.min(from + bytes, end)) };
    let answer = await persist("PATCH", path, headers, file.slice(offset, end), options);
    const differs = answer.body?.code === "offset-differs";
    if (differs && !sha512 && !begun) { // nothing tells whether these are the bytes that began to arrive earlier
      offset = end = file.size;
      answer = await persist("PUT", path, {}, file, options);
    }
    if (answer.body?.code === "offset-differs") {
      const there = await persist("HEAD", path, {}, null, { signal, onWait });
      offset = there.status === 404 ? 0 : Number(there.header("Upload-Offset"));
      if (there.header("Upload-Complete") === "?1") {
        if (!sha512 || there.header("Repr-Digest") === reprDigest(sha512)) return;
        throw changed(file);
      }
    } else if (answer.body?.code === "upload-conflict") {
      throw changed(file);
    } else if (answer.status >= 400) {
      throw new Problem(answer.status, answer.body);
    } else if (end === file.size) {
      return;
    } else {
      begun = true;
      offset = end;
    }
    onBytes(offset);
  }
}

const changed = (file) => new Problem(409, {
  code: "upload-conflict",
  detail: `${file.name} is another file than the one that was uploaded under this name: choose that one, or discard this deposit and begin again.`,
});

// Repeats a request until it is answered: a cut network and a busy server are waited for.
async function persist(method, path, headers, body, options) {
  for (let tries = 0; ; tries++) {
    let wait = Math.min(LONGEST_WAIT, 1000 * 2 ** tries);
    try {
      const answer = await send(method, path, headers, body, options);
      const busy = answer.status === 429 || [502, 503, 504].includes(answer.status) || answer.body?.code === "upload-busy";
      if (!busy) {
        options.onWait("");
        return answer;
      }
      wait = Math.max(wait, 1000 * Number(answer.header("Retry-After") ?? 0));
      options.onWait("The repository is busy");
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      await checkReadable(body, options.name);
      options.onWait("The network is away");
    }
    await pause(wait, options.signal);
  }
}

// A browser says the same of a file that has changed as of a network that is away.
async function checkReadable(body, name) {
  try {
    await body?.slice(0, 1).arrayBuffer();
  } catch {
    throw new Unreadable(name);
  }
}

// Ends early once the network is back.
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const end = (settle) => {
      clearTimeout(timer);
      removeEventListener("online", over);
      signal.removeEventListener("abort", stop);
      settle();
    };
    const over = () => end(resolve);
    const stop = () => end(() => reject(cancelled()));
    const timer = setTimeout(over, milliseconds);
    addEventListener("online", over);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
  });
}

// Speed and time left are of the last seconds, and of the bytes that are sent now.
function measure(total, watch) {
  const past = [];
  let [sent, known] = [0, 0];
  return (more, arrivedBefore = 0) => {
    sent += more;
    known += arrivedBefore;
    const now = performance.now();
    past.push([now, sent]);
    while (now - past[0][0] > SPEED_OVER) past.shift();
    const [[began, before]] = past;
    const speed = now - began > 1000 ? (1000 * (sent - before)) / (now - began) : 0;
    const done = sent + known;
    watch.progress({ done, total, speed, left: speed > 0 ? (total - done) / speed : null });
  };
}
