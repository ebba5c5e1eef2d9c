// The deposit page: choose, see what would become of it, correct, upload, deposit.
import { chosen, dropped, isTable } from "./choose.js";
import { startDigests } from "./digests.js";
import { columnChoices, fieldLabel } from "./columns.js";
import { objectTable } from "./preview.js";
import { Problem, Said, cancelled, request } from "./requests.js";
import { pathOf, uploadAll, uploadFile } from "./upload.js";
import { bytes, counted, duration, element, some } from "./words.js";

const ROWS = 100;
const NAME = 255; // signs of a deposit's name at most
const at = (id) => document.getElementById(id);
const digests = startDigests();
const files = new Map(); // name -> File, as chosen in this tab
let folder = "";
let upload = null; // the id of the upload that keeps the draft
let draft = null;
let version = null; // of the draft, as it is shown
let unsaved = []; // what was entered since: {alter, what}
let refused = []; // what was entered, but the draft was changed elsewhere
let preview = null;
let sentTable = null; // the File whose bytes are in the upload
let sentFiles = null; // the list of files that the saved draft has: it is not sent with each correction
let cursors = [""]; // of the pages up to the one that is shown
let stop = null; // ends the transfer that runs
let shownName = "";

const showObjects = objectTable(at("rows"), {
  onValue: (key, text, label) => change(() => { draft.values[key] = text; }, `${label}: “${text}”`),
  onConsent: (ark, current) => change(() => {
    if (current === null) delete draft.new_version[ark];
    else draft.new_version[ark] = current;
  }, `the consent to a new version of ${ark}`),
  whenEmpty: at("only-errors"),
});
const showColumns = columnChoices(at("columns"), async (alter) => {
  const before = Object.keys(draft.values).length;
  await change(() => { alter(draft); cursors = [""]; }, "what the table’s columns mean");
  if (before && !Object.keys(draft.values).length && at("alert").hidden) alert("What was corrected in the other sheet has been removed.");
});

// Shows what went wrong; nothing that was entered is lost by it.
async function attempt(work) {
  try {
    alert("");
    await work();
  } catch (error) {
    if (error.name === "AbortError") return;
    alert(error instanceof Said ? error.message : "This page has failed: load it again, then continue your deposit.");
    if (!(error instanceof Said)) throw error;
  }
}

const alert = (...content) => tell("alert", () => {}, ...content);

function tell(id, onClose, ...content) {
  const box = at(id);
  box.hidden = !content[0];
  const close = element("button", { type: "button", onclick: () => { box.hidden = true; onClose(); } }, "Close");
  box.replaceChildren(element("p", {}, ...content), close);
}

async function add({ folder: name, files: found }) {
  if (!found.length) throw new Said("There is no file in what you chose.");
  for (const one of found) files.set(one.name, one.file);
  folder ||= name;
  at("by-form").hidden = at("unfinished").hidden = true; // at once, so that nothing moves later
  at("preview").hidden = false;
  if (draft) draft.files = listed(draft.files);
  else draft = proposal();
  await save();
  at("preview-title").focus();
}

const tables = () => [...new Set([...draft.files.map(({ name }) => name), draft.table ?? ""])].filter(isTable);

const order = new Intl.Collator("en", { numeric: true });

// The chosen files, and those that were chosen before the page was closed.
function listed(earlier) {
  const now = [...files].map(([name, file]) => ({ name, size: file.size, sha512: null }));
  const all = [...now, ...earlier.filter(({ name }) => !files.has(name))];
  return all.sort((one, other) => order.compare(one.name, other.name));
}

function proposal() {
  const names = [...files.keys()];
  const [table] = names.filter(isTable);
  const several = names.length > 1 && !folder && !files.has("bagit.txt");
  return {
    name: [...(folder || table || names[0])].slice(0, NAME).join(""),
    profile: at("to-collection").value,
    objects: table ? "table" : several ? "each" : "one",
    files: listed([]),
    table: table ?? null,
    sheet: null,
    header_row: null,
    columns: {},
    values: {},
    new_version: {},
  };
}

// `alter` is done once more if the draft was changed elsewhere meanwhile: it depends on nothing that the page shows.
async function change(alter, what) {
  alter();
  unsaved.push({ alter, what });
  await attempt(save);
}

// Keeps the draft at the repository and shows what it says; changes made meanwhile are sent afterwards.
let saving = null;
let changed = false;
async function save() {
  changed = true;
  saving ??= keep().finally(() => { saving = null; });
  await saving;
}

async function keep() {
  at("preview").setAttribute("aria-busy", "true");
  let stale = false;
  try {
    while (changed) {
      changed = false;
      upload ??= (await request("POST", "/v1/uploads")).id;
      await sendTable();
      stale = await put() || stale;
      if (cursors.length > 1 || at("only-errors").checked) await turn();
      show();
    }
  } catch (error) {
    changed = true; // it is sent with the next change, or once the network is back
    sentFiles = null;
    throw error;
  } finally {
    at("preview").removeAttribute("aria-busy");
  }
  if (stale) throw cancelled(); // the newer draft is looked at first
}

const condition = () => (version === null ? {} : { "If-Match": `"${version}"` });

// Sends the draft; true if it was changed elsewhere, and is now as it was saved there.
async function put() {
  const [given, count] = [draft.files, unsaved.length];
  try {
    preview = await request("PUT", `/v1/drafts/${upload}`, { ...draft, files: given === sentFiles ? undefined : given }, condition());
  } catch (error) {
    if (error.code !== "draft-changed") throw error;
    return adopt();
  }
  [version, sentFiles, unsaved] = [preview.version, given, unsaved.slice(count)];
  if (preview.values) draft.values = preview.values;
  for (const { alter } of unsaved) alter(); // what was entered meanwhile
  const lost = Object.entries(preview.lost).map(([key, text]) => {
    const [row, field] = key.split(/:(?=[^:]*$)/);
    return `${fieldLabel(field)} of row ${row}: “${text}”`;
  });
  if (lost.length) alert(`The table has changed. What was corrected in rows that it no longer has was removed: ${some(lost, 20)}.`);
  return false;
}

const entered = (one) => JSON.stringify({ ...one, files: null });

async function adopt() {
  const kept = await request("GET", `/v1/drafts/${upload}?limit=${ROWS}`);
  const [before, mine] = [entered(draft), unsaved];
  take(kept);
  const there = JSON.stringify(draft.files);
  draft.files = listed(draft.files);
  changed = JSON.stringify(draft.files) !== there;
  if (entered(draft) === before) return false; // it was this page, and the answer was lost
  refused.push(...mine);
  const what = some(refused.map((one) => one.what), 20);
  const repeat = () => {
    at("elsewhere").hidden = true;
    const again = refused.splice(0);
    change(() => again.forEach(({ alter }) => alter()), what);
  };
  tell("elsewhere", () => { refused = []; }, "This deposit was changed in another tab or by another program, and is shown as it is now. ",
    ...(what ? [`Not saved is what you entered here: ${what}. `, element("button", { type: "button", onclick: repeat }, "Save it now")] : ["Look at it, then continue."]));
  return true;
}

function take(kept) {
  const { updated, key, rows, version: saved, ...known } = kept.draft;
  [draft, preview, version, unsaved, sentFiles] = [known, kept.preview, kept.preview.version, [], null];
}

// The page of objects that the last cursor names; the first one if it is there no more.
async function turn() {
  const query = new URLSearchParams({ limit: ROWS, cursor: cursors.at(-1) });
  if (at("only-errors").checked) query.set("only", "errors");
  if (!cursors.at(-1)) query.delete("cursor");
  preview = (await request("GET", `/v1/drafts/${upload}?${query}`)).preview;
  if (!preview.objects.length && cursors.length > 1) {
    cursors.pop();
    await turn();
  }
}

async function sendTable() {
  const file = draft.objects === "table" ? files.get(draft.table) : null;
  if (!file || file === sentTable) return;
  const sending = new AbortController();
  const digest = await digests.of(file);
  try {
    await uploadFile(upload, draft.table, file, digest, { signal: sending.signal, onWait: note });
  } catch (error) {
    if (error.code !== "upload-conflict") throw error;
    await makePlace();
    await uploadFile(upload, draft.table, file, digest, { signal: sending.signal, onWait: note });
  }
  sentTable = file;
}

// For a table that was corrected outside and chosen again: it alone is replaced.
async function makePlace() {
  try {
    await request("DELETE", pathOf(upload, draft.table));
  } catch (error) {
    if (error.status !== 422) throw error;
    // a batch of it failed: what was submitted stays, and nothing tells which row is which
    draft.values = {};
    alert("The table has changed since it was deposited: what was corrected here has been removed.");
    upload = (await request("POST", "/v1/uploads")).id;
    [version, sentFiles] = [null, null];
  }
}

function note(text) {
  at("waiting").textContent = text ? `${text}: the upload continues by itself as soon as it can.` : "";
}

function show() {
  const left = new Set([...preview.left_out, draft.table]);
  const away = draft.files.filter(({ name }) => !files.has(name) && !left.has(name));
  const size = [...files.values()].reduce((sum, file) => sum + file.size, 0);
  at("chosen").textContent = files.size ? `${counted(files.size, "file")} chosen, ${bytes(size)}.` : "";
  at("choose-again").hidden = !away.length;
  at("choose-again").textContent = `Choose the files of “${draft.name}” again: ${some(away.map(({ name }) => name), 3)}. What has arrived is not sent again.`;
  at("preview").hidden = at("preview-body").hidden = false;
  at("to-collection").value = draft.profile;
  showName();
  for (const radio of document.getElementsByName("objects")) radio.checked = radio.value === draft.objects;
  const known = tables();
  at("by-table").hidden = !known.length;
  at("table").replaceChildren(...known.map((name) => element("option", { selected: name === draft.table }, name)));
  at("table-choice").hidden = draft.objects !== "table";
  showColumns(preview.table, draft);
  showObjects(preview, draft);
  at("summary").textContent = summary();
  at("problems").replaceChildren(...general());
  const versions = preview.objects.filter((one) => one.version_of && draft.new_version[one.version_of] !== one.version - 1);
  at("agree").hidden = versions.length < 2;
  at("agree").textContent = `Agree to these ${versions.length} new versions`;
  at("agree").onclick = () => change(
    () => { for (const one of versions) draft.new_version[one.version_of] = one.version - 1; },
    `the consent to ${versions.length} new versions`,
  );
  at("previous").disabled = cursors.length === 1;
  at("next").disabled = !preview.next;
  at("pages").hidden = cursors.length === 1 && !preview.next;
  at("deposit").disabled = preview.erroneous > 0 || preview.errors.length > 0;
}

// What is being typed stays, while an earlier change is saved.
function showName() {
  const field = at("deposit-name");
  if (document.activeElement !== field || field.value === shownName) field.value = draft.name;
  shownName = draft.name;
}

function summary() {
  const made = `${counted(preview.object_count, "object")} of ${counted(preview.file_count, "file")}, ${bytes(preview.bytes)}`;
  const help = preview.missing.length && !preview.file_count ? "choose the files that the table names, too" : "correct them below";
  const wrong = preview.erroneous ? `; ${counted(preview.erroneous, "object")} with mistakes: ${help}` : "";
  const none = at("only-errors").checked && !preview.erroneous ? "; no object with mistakes is left" : "";
  const arrived = preview.arrived_files ? `; ${counted(preview.arrived_files, "file")} (${bytes(preview.arrived_bytes)}) have arrived` : "";
  return `${made}${arrived}${wrong}${none}.`;
}

function general() {
  const box = (tone, ...texts) => element("div", { class: `panel note ${tone}` }, ...texts.map((text) => element("p", {}, text)));
  const notes = [...preview.warnings];
  if (preview.unlisted_count) notes.push(`${counted(preview.unlisted_count, "file")} in no row of the table, not deposited: ${some(preview.unlisted)}.`);
  if (preview.left_out_count) notes.push(`Left out, because a computer made them for itself: ${some(preview.left_out)}.`);
  return [...(preview.errors.length ? [box("bad", ...preview.errors)] : []), ...(notes.length ? [box("warn", ...notes)] : [])];
}

async function deposit(query = "") {
  stop = new AbortController();
  busy(true);
  note("");
  at("bar").value = 0;
  at("amount").textContent = "Your files are read.";
  try {
    const there = await arrivedFiles();
    const apart = draft.objects === "table" && !preview.table?.listed ? [draft.table] : [];
    const skipped = new Set([...preview.unlisted, ...preview.left_out, ...apart]);
    const needed = draft.files.filter(({ name }) => !skipped.has(name));
    const lacking = needed.filter(({ name, size }) => !files.has(name) && there.get(`files/${name}`)?.size !== size);
    if (lacking.length) throw new Said(`Choose the same files again: ${some(lacking.map(({ name }) => name))} ${lacking.length === 1 ? "has" : "have"} not arrived yet.`);
    const sending = needed.filter(({ name }) => files.has(name)).map(({ name }) => ({ name: `files/${name}`, file: files.get(name) }));
    const watch = { progress, reading, waiting: note };
    const found = await uploadAll(upload, sending, there, digests, watch, stop.signal);
    const digestOf = (name) => found[name] ?? there.get(name)?.sha512 ?? null;
    draft.files = draft.files.map((file) => ({ ...file, sha512: digestOf(`files/${file.name}`) }));
    await save();
    await askForMail();
    const { bid, again } = await request("POST", `/v1/drafts/${upload}/deposit${query}`, undefined, condition());
    stop = null;
    if (again) offerRepetition(bid);
    else location.assign(`/batches/${bid}`);
  } catch (error) {
    stop = null;
    busy(false);
    if (error.code === "draft-submitted") { // the answer to an earlier click was lost
      location.assign(`/batches/${(await request("GET", `/v1/drafts/${upload}?limit=1`)).bid}`);
      return;
    }
    if (error instanceof Problem && error.status !== 401) await attempt(save); // what is true now
    throw error;
  }
}

// The notifications of all deposits, which are confirmed by a mail to the address.
async function askForMail() {
  if (!at("mail-me")?.checked) return;
  await request("POST", "/v1/notifications", { events: ["done", "failed"], mail: at("mail-address").value });
  at("mail-me").checked = false; // once, also if the deposit is refused
}

function offerRepetition(bid) {
  busy(false);
  const page = element("a", { href: `/batches/${bid}` }, bid);
  const repeat = element("button", { type: "button", onclick: () => attempt(() => deposit("?again=true")) }, "Deposit it again");
  alert("You have deposited exactly this before: ", page, ". Nothing was added. ", repeat);
}

async function arrivedFiles() {
  const there = await request("GET", `/v1/uploads/${upload}`);
  return new Map(there.files.map((file) => [file.name, file]));
}

function busy(yes) {
  at("transfer").hidden = !yes;
  at("choose").hidden = at("preview").hidden = yes;
  at(yes ? "transfer-title" : "deposit").focus();
}

// Shown until the first bytes are sent: a large file is read for minutes.
function reading(file, read) {
  if (!at("bar").value) at("amount").textContent = `${file.name} is read to compute its digest: ${bytes(read)} of ${bytes(file.size)}`;
}

function progress({ done, total, speed, left }) {
  at("bar").max = total || 1;
  at("bar").value = total ? done : 1;
  const pace = speed ? `, ${bytes(speed)} a second` : "";
  at("amount").textContent = `${bytes(done)} of ${bytes(total)}${pace}${left === null ? "" : `, ${duration(left)} left`}`;
}

async function resume(id) {
  const kept = await request("GET", `/v1/drafts/${id}?limit=${ROWS}`);
  upload = id;
  take(kept);
  show();
  at("by-form").hidden = at("unfinished").hidden = true;
  at("choose-files").focus();
}

async function listUnfinished() {
  const { drafts } = await request("GET", "/v1/drafts");
  at("unfinished").hidden = !drafts.length || draft !== null;
  at("unfinished-list").replaceChildren(...drafts.map((one) => {
    const until = new Date(one.expires).toLocaleDateString("en", { day: "numeric", month: "long" });
    const text = one.problem ?? `${counted(one.files, "file")}, ${bytes(one.arrived_bytes)} of ${bytes(one.bytes)} have arrived; kept until ${until}. `;
    const row = element("li", {}, element("strong", {}, one.name || "Without a name"), ` in ${one.profile ?? "an unknown collection"}: ${text} `,
      one.problem ? null : element("button", { type: "button", onclick: () => attempt(() => resume(one.id)) }, `Continue ${one.name}`), " ",
      element("button", { type: "button", class: "danger", onclick: () => attempt(() => discard(one.id, one.name)) }, `Discard ${one.name}`));
    return row;
  }));
}

async function discard(id, name) {
  if (!confirm(`Discard “${name}”? What has arrived of it is removed.`)) return;
  await request("DELETE", `/v1/uploads/${id}`);
  if (id === upload) location.reload();
  else await listUnfinished();
}

// Dictation and form fillers enter text without a "change" event: leaving the field makes one.
function completeChanges() {
  const open = new Set(); // the fields whose change has not been said
  document.addEventListener("input", ({ target }) => open.add(target), true);
  document.addEventListener("change", ({ target }) => open.delete(target), true);
  document.addEventListener("focusout", ({ target }) => {
    if (open.delete(target)) target.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

function listen() {
  completeChanges();
  for (const id of ["choose-files", "choose-folder"]) {
    at(id).addEventListener("click", () => { at(id).value = ""; }); // the same files may be chosen again
    const addChosen = () => attempt(() => add(chosen(at(id).files)));
    at(id).addEventListener("change", addChosen);
    if (at(id).files.length) addChosen(); // while this script was being loaded
  }
  for (const kind of ["dragover", "dragleave", "drop"]) { // anywhere: a browser would open what is dropped beside
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      at("drop").classList.toggle("over", kind === "dragover");
      if (kind === "drop" && !stop) attempt(async () => add(await dropped(event.dataTransfer)));
    });
  }
  const altered = (id, what, alter) => at(id).addEventListener("change", () => {
    const { value } = at(id);
    if (draft) change(() => alter(value), `${what}: “${value}”`);
  });
  altered("to-collection", "Collection", (value) => { draft.profile = value; });
  altered("deposit-name", "Name of this deposit", (value) => { draft.name = value; });
  altered("table", "The table", (value) => Object.assign(draft, { table: value, sheet: null, header_row: null, columns: {}, values: {} }));
  for (const radio of document.getElementsByName("objects")) {
    radio.addEventListener("change", () => change(() => {
      draft.objects = radio.value;
      draft.table = radio.value === "table" ? tables()[0] : null; // otherwise it is a file like the others
      cursors = [""];
    }, "what becomes an object"));
  }
  const page = (move) => attempt(async () => { move(); await turn(); show(); });
  at("only-errors").addEventListener("change", () => page(() => { cursors = [""]; }));
  at("next").addEventListener("click", () => page(() => cursors.push(preview.next)));
  at("previous").addEventListener("click", () => page(() => cursors.pop()));
  at("mail-me")?.addEventListener("change", () => {
    at("mail-to").hidden = !at("mail-me").checked;
    at("mail-address").required = at("mail-me").checked;
    if (at("mail-me").checked) at("mail-address").focus();
  });
  at("deposit").addEventListener("click", () => { if (at("mail-address")?.reportValidity() ?? true) attempt(() => deposit()); });
  at("discard").addEventListener("click", () => attempt(() => discard(upload, draft.name)));
  at("cancel").addEventListener("click", () => stop?.abort());
  addEventListener("online", () => { if (changed && !stop) attempt(save); });
  addEventListener("beforeunload", (event) => { if (stop) event.preventDefault(); });
}

listen();
digests.available.then((yes) => { at("undeclared").hidden = yes; });
attempt(listUnfinished);
