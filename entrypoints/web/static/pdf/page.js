// Gives the frame the PDF that it shows: the frame has no session, and can ask for nothing of the site.
const frame = document.querySelector("iframe[data-pdf]");
const state = document.getElementById("pdf-state");
const FIRST_ANSWER_MS = 2000; // the scripts of the frame have run before its load event
const SENTENCES = {
  shown: "A preview: scripts in the PDF do not run, and some fonts may look different. The download is the whole file.",
  password: "There is no preview: the PDF needs a password. Download the file.",
  broken: "There is no preview: the PDF is damaged, or of a kind that is not known here. Download the file.",
};

async function load() {
  const answer = await fetch(frame.dataset.pdf);
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.arrayBuffer();
}

let answered = false;
addEventListener("message", async (event) => {
  if (event.source !== frame.contentWindow) return;
  answered = true;
  if (event.data !== "ready") {
    state.textContent = SENTENCES[event.data] ?? SENTENCES.broken;
    return;
  }
  try {
    const data = await load();
    frame.contentWindow.postMessage(data, "*", [data]);
  } catch (error) {
    state.textContent = `There is no preview: ${error.message}`;
  }
});
state.textContent = "The PDF is being loaded.";
frame.addEventListener("load", () => setTimeout(() => {
  if (!answered) state.textContent = "There is no preview: this browser does not run it. Download the file.";
}, FIRST_ANSWER_MS));
frame.src = frame.dataset.page; // only now: its first message needs the listener
