// The objects that would be made: one row each, whose values can be corrected.
import { bytes, counted, element } from "./words.js";

const FIELDS = [["title", "Title"], ["creator", "Creator"], ["date", "Date"], ["local_id", "Identifiers"]];
const COLUMNS = ["Row", ...FIELDS.map(([, label]) => label), "Files", "Becomes"];
const SHOWN_FILES = 3;

// A row stays the same element when it is shown again, so that nobody loses what is being typed.
export function objectTable(body, { onValue, onConsent, whenEmpty }) {
  const rows = new Map();
  return (preview, draft) => {
    const missing = new Map(preview.missing.map((one) => [one.key, one]));
    const shown = new Set(preview.objects.map((one) => one.key));
    const away = document.activeElement?.closest("tr");
    for (const [key, row] of rows) if (!shown.has(key)) { row.element.remove(); rows.delete(key); }
    preview.objects.forEach((one, at) => {
      if (!rows.has(one.key)) rows.set(one.key, newRow(one, onValue, onConsent));
      const row = rows.get(one.key);
      row.show(one, draft, missing.get(one.key));
      if (body.rows[at] !== row.element) body.insertBefore(row.element, body.rows[at] ?? null);
    });
    if (away?.dataset.key && !body.contains(away)) {
      (body.querySelector("input") ?? whenEmpty).focus({ preventScroll: true });
    }
  };
}

function newRow(one, onValue, onConsent) {
  const name = one.row ? `row ${one.row}` : "the object";
  const inputs = Object.fromEntries(FIELDS.map(([field, label]) => [field, input(one.key, field, `${label} of ${name}`, onValue)]));
  inputs.file = input(one.key, "file", `File of ${name}`, onValue);
  const cells = COLUMNS.map((title) => element("td", { "data-title": title }));
  const [number, title, creator, date, identifiers, files, becomes] = cells;
  [title, creator, date, identifiers].forEach((cell, at) => cell.append(inputs[FIELDS[at][0]].box));
  const chosen = element("div");
  files.append(chosen, inputs.file.box);
  number.textContent = one.row || "";
  return {
    element: element("tr", { "data-key": one.key }, ...cells),
    show(object, draft, missing) {
      const problems = problemsByField(object);
      for (const [field] of FIELDS) {
        const text = field === "local_id" ? object.local_id.join("; ") : object[field];
        inputs[field].show(draft.values[`${one.key}:${field}`] ?? text, problems.take(field));
      }
      const ofFile = problems.take("file");
      const corrected = draft.values[`${one.key}:file`];
      inputs.file.box.hidden = !ofFile.some((problem) => problem.error) && corrected === undefined;
      inputs.file.show(corrected ?? missing?.name ?? object.files[0]?.name ?? "", ofFile, missing?.near);
      chosen.replaceChildren(fileList(object.files, object.file_count));
      becomes.replaceChildren(...version(object, name, draft, onConsent), ...problems.rest().map(sentence));
    },
  };
}

let made = 0;

function input(key, field, label, onValue) {
  const id = `value-${++made}`; // not of the key, a file's name: an id has no spaces
  const said = element("div", { id: `${id}-said` });
  const near = element("datalist", { id: `${id}-near` });
  const typed = element("input", {
    id, "aria-label": label, "aria-describedby": said.id, "data-key": `${key}:${field}`, autocomplete: "off",
    onchange: () => onValue(`${key}:${field}`, typed.value, label),
  });
  let shown = "";
  return {
    box: element("div", {}, typed, said, near),
    show(text, problems, names = []) {
      const isTyped = document.activeElement === typed && typed.value !== shown;
      shown = text ?? "";
      if (!isTyped) typed.value = shown;
      const wrong = problems.some((problem) => problem.error);
      if (wrong) typed.setAttribute("aria-invalid", "true");
      else typed.removeAttribute("aria-invalid");
      said.replaceChildren(...problems.map(sentence));
      near.replaceChildren(...names.map((value) => element("option", { value })));
      if (names.length) typed.setAttribute("list", near.id);
      else typed.removeAttribute("list");
    },
  };
}

function problemsByField(object) {
  const all = [
    ...object.errors.map((problem) => ({ ...problem, error: true })),
    ...object.warnings.map((problem) => ({ ...problem, error: false })),
  ];
  const taken = new Set();
  return {
    take: (field) => { taken.add(field); return all.filter((problem) => problem.field === field); },
    rest: () => all.filter((problem) => !taken.has(problem.field)),
  };
}

const sentence = ({ message, error }) =>
  element("p", { class: error ? "wrong" : "doubtful" }, element("b", {}, error ? "Error: " : "Check: "), message);

function fileList(files, count) {
  const size = (file) => [file.size === null ? "" : bytes(file.size), file.arrived ? "has arrived" : ""].filter(Boolean).join(", ");
  const line = (file) => element("li", {}, `${file.url ?? file.name} `, element("small", {}, size(file)));
  const list = element("ul", { class: "plain" }, ...files.slice(0, SHOWN_FILES).map(line));
  if (count <= SHOWN_FILES) return list;
  const rest = element("ul", { class: "plain" }, ...files.slice(SHOWN_FILES).map(line));
  if (count > files.length) rest.append(element("li", {}, `and ${counted(count - files.length, "other")}`));
  const summary = element("summary", {}, counted(count - SHOWN_FILES, "further file"));
  list.append(element("li", {}, element("details", {}, summary, rest)));
  return list;
}

function version(object, name, draft, onConsent) {
  if (!object.version_of) return ["new"];
  const current = object.version - 1;
  const box = element("input", {
    type: "checkbox", checked: draft.new_version[object.version_of] === current,
    "aria-label": `Yes, ${name} becomes version ${object.version} of ${object.version_of}`,
    onchange: () => onConsent(object.version_of, box.checked ? current : null),
  });
  const link = element("a", { href: `/objects/${object.version_of}`, target: "_blank" }, object.version_of);
  return [`version ${object.version} of `, link, element("label", {}, box, "yes, a new version")];
}
