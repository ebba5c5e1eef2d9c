// Shows a PDF page by page. It runs in a sandboxed frame without an origin: it gets the bytes from the page
// around it, once, and answers with how far it came.
import { AnnotationMode, GlobalWorkerOptions, getDocument } from "./pdf.min.mjs";

const WIDTH = 2000; // pixels of a canvas, at most
const IMAGE_PIXELS = 100_000_000; // larger images in a PDF are left out
const here = new URL("./", import.meta.url).href;

const [back, next, place, canvas, text] = ["back", "next", "place", "page", "text"].map((id) =>
  document.getElementById(id),
);
const module = `${here}pdf.worker.min.mjs`;
// a document without an origin starts a worker from its own blob alone: Chromium starts no module so, and Safari
// imports none into a worker
const IMPORT = `import("${module}").catch(() => postMessage("failed"));`;
let pdf;
let shown = 0;

async function startWorker() {
  const worker = await started(IMPORT, "classic") ?? await started(await (await fetch(module)).text(), "module");
  if (!worker) throw new Error("no worker starts");
  GlobalWorkerOptions.workerPort = worker;
}

async function started(program, type) {
  const worker = new Worker(URL.createObjectURL(new Blob([program], { type: "text/javascript" })), { type });
  const said = await new Promise((heard) => {
    for (const kind of ["message", "error"]) worker.addEventListener(kind, heard, { once: true });
  });
  return said.type === "error" || said.data === "failed" ? null : worker;
}

async function show(number) {
  back.disabled = next.disabled = true;
  const page = await pdf.getPage(number);
  const { width } = page.getViewport({ scale: 1 });
  const wanted = Math.min(WIDTH, canvas.parentElement.clientWidth * devicePixelRatio);
  const viewport = page.getViewport({ scale: wanted / width });
  canvas.width = viewport.width;
  canvas.height = viewport.height;
  await page.render({ canvas, viewport, annotationMode: AnnotationMode.ENABLE }).promise;
  text.textContent = (await textOf(page)).join(" ");
  shown = number;
  place.textContent = `Page ${number} of ${pdf.numPages}`;
  canvas.setAttribute("aria-label", place.textContent);
  back.disabled = number === 1;
  next.disabled = number === pdf.numPages;
  page.cleanup();
}

// getTextContent iterates a stream, which not every Safari can.
async function textOf(page) {
  const reader = page.streamTextContent().getReader();
  const texts = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    texts.push(...next.value.items.map((item) => item.str ?? ""));
  }
  return texts;
}

async function attempt(work) {
  try {
    await work();
    parent.postMessage("shown", "*");
  } catch (error) {
    parent.postMessage(error.name === "PasswordException" ? "password" : "broken", "*");
  }
}

back.addEventListener("click", () => attempt(() => show(shown - 1)));
next.addEventListener("click", () => attempt(() => show(shown + 1)));
addEventListener(
  "message",
  ({ data }) =>
    attempt(async () => {
      await startWorker();
      pdf = await getDocument({ data, wasmUrl: here, maxImageSize: IMAGE_PIXELS, useSystemFonts: true }).promise;
      await show(1);
    }),
  { once: true },
);
parent.postMessage("ready", "*");
