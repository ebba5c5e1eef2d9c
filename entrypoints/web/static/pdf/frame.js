// Shows a PDF page by page. It runs in a sandboxed frame without an origin: it gets the bytes from the page
// around it, once, and answers with how far it came.
import { AnnotationMode, GlobalWorkerOptions, getDocument } from "./pdf.min.mjs";

const WIDTH = 2000; // pixels of a canvas, at most
const IMAGE_PIXELS = 100_000_000; // larger images in a PDF are left out
const here = new URL("./", import.meta.url).href;

const [back, next, place, canvas, text] = ["back", "next", "place", "page", "text"].map((id) =>
  document.getElementById(id),
);
// a document without an origin starts a worker from its own blob alone, and no module
const PROGRAM = `import("${here}pdf.worker.min.mjs").catch(() => postMessage("failed"));`;
let pdf;
let shown = 0;

async function startWorker() {
  const worker = new Worker(URL.createObjectURL(new Blob([PROGRAM], { type: "text/javascript" })));
  const { data } = await new Promise((heard) => worker.addEventListener("message", heard, { once: true }));
  if (data === "failed") throw new Error("the worker does not start");
  GlobalWorkerOptions.workerPort = worker;
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
  const content = await page.getTextContent();
  text.textContent = content.items.map((item) => item.str ?? "").join(" ");
  shown = number;
  place.textContent = `Page ${number} of ${pdf.numPages}`;
  canvas.setAttribute("aria-label", place.textContent);
  back.disabled = number === 1;
  next.disabled = number === pdf.numPages;
  page.cleanup();
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
