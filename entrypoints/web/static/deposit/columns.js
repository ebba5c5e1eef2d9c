// The meaning of the table's columns, chosen from lists; its sheet and its header row.
import { element } from "./words.js";

const FIELDS = [
  ["", "left out"], ["file", "File"], ["url", "URL"], ["title", "Title"], ["creator", "Creator"], ["date", "Date"],
  ["local_id", "Your identifier"], ["ark", "ARK"], ["md5", "MD5 digest"], ["sha1", "SHA-1 digest"], ["sha256", "SHA-256 digest"],
  ["sha512", "SHA-512 digest"], ["digest", "Digest"], ["algorithm", "Algorithm of the digest"], ["size", "Size in bytes"],
  ["mime_type", "MIME type"],
];

export const fieldLabel = (code) => FIELDS.find(([known]) => known === code)?.[1] ?? code;

export function columnChoices(box, onChange) {
  let shown = "";
  return (table, draft) => {
    const now = JSON.stringify([table, draft.columns]);
    if (now === shown) return;
    shown = now;
    const focused = document.activeElement?.id;
    box.replaceChildren(...(table ? choices(table, draft, onChange) : []));
    if (box.querySelector(`[id="${focused}"]`)) document.getElementById(focused).focus();
  };
}

function choices(table, draft, onChange) {
  const parts = table.columns.filter(({ header }) => header).map(({ header, field }, at) => choice(
    `column-${at}`, `“${header}” is`,
    FIELDS.map(([code, label]) => element("option", { value: code, selected: code === (field ?? "") }, label)),
    (value) => onChange((kept) => { kept.columns[header] = value; }),
  ));
  if (table.sheets.length > 1) {
    parts.unshift(choice("sheet", "Sheet", table.sheets.map((name) => element("option", { selected: name === table.sheet }, name)),
      (value) => onChange((kept) => Object.assign(kept, { sheet: value, header_row: null, columns: {}, values: {} })))); // other rows
  }
  const row = element("input", { id: "header-row", type: "number", min: 1, value: table.header_row ?? 1,
    onchange: () => {
      const header_row = Number(row.value) || null;
      onChange((kept) => Object.assign(kept, { header_row, columns: {} }));
    } });
  parts.unshift(element("div", {}, element("label", { for: "header-row" }, "Row with the names of the columns"), row));
  return parts;
}

function choice(id, label, options, onChange) {
  const list = element("select", { id, onchange: () => onChange(list.value) }, ...options);
  return element("div", {}, element("label", { for: id }, label), list);
}
