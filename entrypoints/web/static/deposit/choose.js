// What a person chose or dropped: files, with their names relative to it.
import { Said } from "./requests.js";

// The entries have to be taken from the event at once: afterwards the browser forgets them.
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return chosen([...transfer.files]);
  const found = [];
  for (const entry of entries) await walk(entry, "", found);
  return withoutFolder(found);
}

export function chosen(files) {
  return withoutFolder([...files].map((file) => ({ name: file.webkitRelativePath || file.name, file })));
}

async function walk(entry, folder, found) {
  const read = (ask) => new Promise(ask).catch(() => {
    throw new Said(`“${folder}${entry.name}” cannot be read: check who may open it, then drop it again. Nothing was added.`);
  });
  if (entry.isFile) {
    const file = await read((resolve, reject) => entry.file(resolve, reject));
    found.push({ name: folder + entry.name, file });
    return;
  }
  const reader = entry.createReader();
  for (;;) { // each call gives some hundred entries, the last one none
    const some = await read((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const one of some) await walk(one, `${folder}${entry.name}/`, found);
  }
}

// A single folder names the deposit, and is not part of the files' names.
function withoutFolder(files) {
  const [folder, rest] = split(files[0]?.name ?? "");
  if (!rest || !files.every(({ name }) => name.startsWith(`${folder}/`))) return { folder: "", files };
  return { folder, files: files.map(({ name, file }) => ({ name: name.slice(folder.length + 1), file })) };
}

function split(name) {
  const at = name.indexOf("/");
  return at < 0 ? [name, ""] : [name.slice(0, at), name.slice(at + 1)];
}

export const isTable = (name) => /\.(csv|tsv|tab|xlsx|xlsm|xls|ods)$/i.test(name);
