// Requests to the repository: JSON, and bytes whose transfer is seen.

// What a person is told; any other error is a mistake of these scripts.
export class Said extends Error {}

export class Problem extends Said {
  constructor(status, body) {
    super(status === 401
      ? "Your login has ended. Log in again in another tab of this browser, then continue here: nothing is lost."
      : body?.detail || body?.title || (status === 413
        ? "A server before the repository takes no files of this size (error 413). Tell the staff of the repository."
        : `The repository answered with the error ${status}.`));
    this.status = status;
    this.code = body?.code ?? "";
    this.body = body;
  }
}

export class Unreachable extends Said {
  constructor() {
    super("The repository cannot be reached: check the network, then try again. What you entered is still here.");
  }
}

const TRIES = 6;

// A server that is busy for some seconds is waited for.
export async function request(method, path, body, headers = {}) {
  const json = body === undefined ? { headers } : { headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) };
  for (let tries = 1; ; tries++) {
    let answer;
    try {
      answer = await fetch(path, { method, ...json });
    } catch {
      throw new Unreachable();
    }
    if (answer.ok) return answer.status === 204 ? null : answer.json();
    const wait = Number(answer.headers.get("Retry-After"));
    if (!wait || tries === TRIES) throw new Problem(answer.status, await answer.json().catch(() => null));
    await new Promise((resolve) => { setTimeout(resolve, 1000 * Math.min(wait, 10)); });
  }
}

// `fetch` does not say how much of a body was sent.
export function send(method, path, headers, body, { signal, onSent = () => {} }) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open(method, path);
    for (const [name, value] of Object.entries(headers)) sending.setRequestHeader(name, value);
    sending.upload.onprogress = (event) => onSent(event.loaded);
    sending.onerror = () => reject(new Unreachable());
    sending.onabort = () => reject(cancelled());
    sending.onload = () => resolve({
      status: sending.status,
      header: (name) => sending.getResponseHeader(name),
      body: told(sending.responseText),
    });
    if (signal.aborted) return reject(cancelled());
    const abort = () => sending.abort();
    signal.addEventListener("abort", abort);
    sending.onloadend = () => signal.removeEventListener("abort", abort);
    sending.send(body);
  });
}

export const cancelled = () => new DOMException("cancelled", "AbortError");

function told(text) {
  try { return JSON.parse(text); } catch { return null; }
}
